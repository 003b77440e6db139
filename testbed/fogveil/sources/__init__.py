"""The sources: IoT clusters that emit workloads and take results in."""
