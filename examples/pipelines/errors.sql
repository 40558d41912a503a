-- # Lines of text that tell of an error, into a topic of their own. Above the statement is TOML, in comments.
-- name = "errors"
--
-- [source.lines]
-- topic = "lines"
-- format = "text"
--
-- [sink]
-- topic = "errors"
-- key = "_key"

SELECT _key, value
FROM lines
WHERE value LIKE '%ERROR%'
