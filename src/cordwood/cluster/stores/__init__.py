"""The stores of the cluster's metadata: one contract, several stores."""
