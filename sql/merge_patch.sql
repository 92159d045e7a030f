-- SPDX-License-Identifier: MIT
-- RFC 7396 (JSON merge patch).

CREATE OR REPLACE FUNCTION foldd.merge_patch(target jsonb, patch jsonb) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    members jsonb;
    nulls text[];
BEGIN
    IF target IS NULL OR jsonb_typeof(target) <> 'object' THEN
        target := '{}';
    END IF;
    -- The common patch sets plain values only: one copy of the target.
    IF NOT patch @? 'strict $.* ? (@ == null || @.type() == "object")' THEN
        RETURN target || patch;
    END IF;
    -- Each member is looked at once, and each object is built once, however many there are. What is
    -- stored compressed is unpacked here, not again for every member.
    target := target || '{}';
    patch := patch || '{}';
    SELECT jsonb_object_agg(p.key, CASE WHEN jsonb_typeof(p.value) = 'object'
                                        THEN foldd.merge_patch(target -> p.key, p.value)
                                        ELSE p.value END) FILTER (WHERE p.value <> 'null'),
           array_agg(p.key) FILTER (WHERE p.value = 'null')
    INTO members, nulls
    FROM jsonb_each(patch) p;
    IF cardinality(nulls) > 16 THEN
        -- The operator compares every key with every name.
        SELECT coalesce(jsonb_object_agg(t.key, t.value), '{}') INTO target
        FROM jsonb_each(target) t WHERE NOT patch ? t.key OR patch -> t.key <> 'null';
    ELSIF nulls IS NOT NULL THEN
        target := target - nulls;
    END IF;
    RETURN target || coalesce(members, '{}');
END
$$;
COMMENT ON FUNCTION foldd.merge_patch(jsonb, jsonb) IS
    'RFC 7396: target (an object; anything else counts as {}) changed by patch (an object).';
