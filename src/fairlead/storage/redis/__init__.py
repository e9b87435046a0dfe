"""The Redis store: the fast shared backend.

`keys` names what is kept where, `codec` says how a task becomes bytes, `scripts` holds the Lua of each operation.
`address`, `wire`, `blocking`, `streaming`, `topology` and `client` get commands to the right server and replies back;
nothing in them knows of tasks. `store` and `finding` are the contract in terms of all these.
"""
