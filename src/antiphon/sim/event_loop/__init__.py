"""TODO sim/event_loop"""
