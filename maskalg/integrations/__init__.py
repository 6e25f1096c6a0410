"""maskalg in the models of other libraries; each module is imported by those who want it."""
