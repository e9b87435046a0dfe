"""`fairlead top`: everything at a glance, again and again."""
