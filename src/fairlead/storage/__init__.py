"""Where tasks are kept: one contract, several stores.

`protocol` is the contract, `values` its vocabulary. A store is a dumb, fast, atomic shelf: it compares and sets what
`fairlead.core` decided and merges lane heads by the table it is given. It holds no rule of behaviour and never logs.
"""
