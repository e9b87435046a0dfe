-- Lanes by their heads: a claim finds those that may have the next task, however many there are.
--
-- `head_ready_at` and `head_id` are a lower bound of what a claim may find in a lane, NULL when there is nothing. What
-- takes a task out of a lane may leave them as they are; a claim that goes by them corrects those that it meets. In a
-- lane of keyed tasks they are a bound of its rows in `front`.
--
-- `shut` names the sets of task types whose claims have passed a lane over, since its type is not among those that they
-- may take: they need not look at it again. `writes` goes up when a process counts that keeps these columns; where one of
-- an earlier version has counted, a trigger opens the bound.

ALTER TABLE lane ADD COLUMN head_ready_at INTEGER;
ALTER TABLE lane ADD COLUMN head_id TEXT NOT NULL DEFAULT '';
ALTER TABLE lane ADD COLUMN shut TEXT NOT NULL DEFAULT '';
ALTER TABLE lane ADD COLUMN writes INTEGER NOT NULL DEFAULT 0;

UPDATE lane SET head_ready_at = 0 WHERE queued > 0;

CREATE INDEX lane_heads ON lane (queue, shut, priority, requires, head_ready_at, head_id)
WHERE head_ready_at IS NOT NULL;
CREATE INDEX lane_heads_everywhere ON lane (shut, priority, requires, head_ready_at, head_id, queue)
WHERE head_ready_at IS NOT NULL;
-- Not by `keyed = 1`: SQLite would prepare a statement that asks for `keyed = ?` anew whenever it is run.
CREATE INDEX lane_keyed ON lane (queue) WHERE keyed > 0;

-- How many tasks wait and run in a queue that has a bound or a limit; the others have no row.
CREATE TABLE total (
    queue TEXT PRIMARY KEY,
    waiting INTEGER NOT NULL,
    executing INTEGER NOT NULL
) WITHOUT ROWID;

-- A process of an earlier version has counted. A file is brought up to date statement by statement, so a trigger is one
-- line to its end.
CREATE TRIGGER lane_counted AFTER UPDATE OF queued ON lane
WHEN NEW.writes = OLD.writes
BEGIN UPDATE lane SET head_ready_at = 0, head_id = '' WHERE lane = NEW.lane AND NEW.queued > OLD.queued; DELETE FROM total WHERE queue = NEW.queue; END;

CREATE TRIGGER lane_forgotten AFTER DELETE ON lane
WHEN NOT EXISTS (SELECT 1 FROM lane WHERE lane.queue = OLD.queue)
BEGIN DELETE FROM total WHERE queue = OLD.queue; END;

CREATE TRIGGER front_entered AFTER INSERT ON front
BEGIN UPDATE lane SET head_ready_at = NEW.ready_at, head_id = NEW.id WHERE lane = NEW.lane AND (head_ready_at IS NULL OR (head_ready_at, head_id) > (NEW.ready_at, NEW.id)); END;
