"""What work takes on a device, by models of one interface: `predict(task) -> Estimate | None`."""
