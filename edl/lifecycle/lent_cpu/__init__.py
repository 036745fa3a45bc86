"""What lending costs a job, and the guard of the CPU requests of trainers that lend."""
