"""Sandboxes for frameworks of agents. Each module needs its framework, which an extra of its name installs."""
