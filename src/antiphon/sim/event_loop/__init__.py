"""An asyncio event loop without time, and a guard against calls that are not simulated."""
