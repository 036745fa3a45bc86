"""Jobs whose trainers request neither cpu nor memory: what they get of the room that all other pods leave."""
