-- SPDX-License-Identifier: MIT
-- RFC 7396 (JSON merge patch).

CREATE OR REPLACE FUNCTION foldd.merge_patch(target jsonb, patch jsonb) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    member record;
    nulls text[];
BEGIN
    IF target IS NULL OR jsonb_typeof(target) <> 'object' THEN
        target := '{}';
    END IF;
    -- The common patch sets plain values only: one copy of the target.
    IF NOT patch @? 'strict $.* ? (@ == null || @.type() == "object")' THEN
        RETURN target || patch;
    END IF;
    FOR member IN SELECT key, value, jsonb_typeof(value) AS kind FROM jsonb_each(patch) LOOP
        IF member.kind = 'null' THEN
            nulls := nulls || member.key;
        ELSIF member.kind = 'object' THEN
            patch := jsonb_set(patch, ARRAY[member.key],
                               foldd.merge_patch(target -> member.key, member.value));
        END IF;
    END LOOP;
    IF nulls IS NOT NULL THEN
        RETURN (target - nulls) || (patch - nulls);
    END IF;
    RETURN target || patch;
END
$$;
COMMENT ON FUNCTION foldd.merge_patch(jsonb, jsonb) IS
    'RFC 7396: target (an object; anything else counts as {}) changed by patch (an object).';
