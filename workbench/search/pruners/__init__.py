"""Rules by which a search leaves things out: small objects with a name, switched on one by one."""
