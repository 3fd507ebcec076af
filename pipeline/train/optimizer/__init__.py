"""Updates of the parameters: optimizers, learning rate, gradient clipping and loss scaling."""
