"""The parts of scripts/bench/publish.py: rayfleet's publishing against what people use today."""
