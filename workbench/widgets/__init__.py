"""View data as interactive widgets."""
