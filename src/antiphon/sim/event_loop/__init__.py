"""An asyncio event loop without time, and a guard against what is not simulated."""
