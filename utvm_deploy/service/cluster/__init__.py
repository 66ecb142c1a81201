"""Several machines with boards, on Dask distributed: workers, leases, certificates, jobs."""
