"""Runtime prediction: replay of ET+ graphs, what-ifs, held-out iterations."""
