-- Say up to which number tasks are filed. Parameters: number.
UPDATE filed SET number = ?
