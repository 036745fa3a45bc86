"""A small convolutional network on handwritten digits, trained in step by any number of trainers."""
