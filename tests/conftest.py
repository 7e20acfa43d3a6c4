import os

# scikit-learn skips its array-API check without this; it must be set before scipy is imported.
os.environ.setdefault("SCIPY_ARRAY_API", "1")
# Tests run beside each other, and threads of small matrix products that wait for one another take longer than none.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings

# Kernels compile on first use, so a first example may take seconds.
settings.register_profile(
    "knotwork", deadline=None, max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("knotwork")
