"""Agents: what runs on each node and keeps its workers in step with the job."""
