"""What is still to be trained: ``queue.toml``; ``python -m benchmarks.trainings`` trains what a store lacks."""
