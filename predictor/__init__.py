"""Import paths of releases before the package was split; see `etplus.replaying`."""
