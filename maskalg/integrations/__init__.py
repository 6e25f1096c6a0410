"""maskalg as the attention of other libraries' models: import the module of your library."""
