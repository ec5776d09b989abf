"""What does the GPU say: compile, launch, time, count, replay. The only place that imports a GPU library."""
