"""An example to copy: a logistic model on parameter servers, with a changing number of trainers."""
