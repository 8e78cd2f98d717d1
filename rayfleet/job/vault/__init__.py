"""Where the jobs of a cluster are kept while the cluster is not there."""
