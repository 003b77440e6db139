"""The central agent: what it may see, how it decides, and the policies it can run."""
