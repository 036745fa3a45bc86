"""Jobs whose trainers request neither cpu nor memory: what they get of the capacity that all other pods leave."""
