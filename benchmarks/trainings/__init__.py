"""The queue of trainings, ``queue.toml``; ``python -m benchmarks.trainings`` trains what a store lacks."""
