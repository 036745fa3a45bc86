"""What a script does beside the step of edl, and would differ between trainers: it is seen, and refused."""
