"""One recorded job in other parallel layouts: tensor, data and pipeline parallelism, and their products."""
