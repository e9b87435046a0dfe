-- The end of add_one.lua: its bucket is overfull, or the id has not been listed.

if listed then
  split(tree, start, call('get', tree .. start))
else
  plant(tree, { id })
end
return 1
