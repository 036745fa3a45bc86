"""Plays a scenario file of the simulator on a cluster in real time, and puts both results side by side."""
