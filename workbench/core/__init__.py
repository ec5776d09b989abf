"""What is a tensor: shapes, data types, layouts, and the three levels of the GPU's memory."""
