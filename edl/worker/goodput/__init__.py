"""The global batch of a job that allows a range of them: noise of gradients, times of steps, choice, learning rate.

Plain Python without a framework. Start reading in `tuner.py`.
"""
