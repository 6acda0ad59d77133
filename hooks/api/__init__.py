"""The REST resources: requests, batches, partitions."""
