CREATE TABLE trunkline.tables (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    device     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    period_ns  bigint NOT NULL,
    refresh_ns bigint,                          -- as told; null if learned
    state      bytea,                           -- what is known after the last chunk
    UNIQUE (device, name)
);
CREATE TABLE trunkline.series (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    table_id bigint NOT NULL REFERENCES trunkline.tables,
    position bigint NOT NULL,                   -- of the column in the table's chunks
    name     text COLLATE "C" NOT NULL,
    kind     bigint NOT NULL,                   -- 0 Counter32, 1 Counter64, 2 gauge, 3 real
    unit     text COLLATE "C" NOT NULL,
    ceiling  bigint,                            -- 64 bits; those above 2^63 stand as negative
    mark     bigint,                            -- position of the discontinuity time
    UNIQUE (table_id, position),
    UNIQUE (table_id, name)
);
CREATE TABLE trunkline.tails (                  -- what was flushed and is in no chunk yet
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    table_id bigint NOT NULL REFERENCES trunkline.tables,
    rows     bigint NOT NULL,
    last     bigint NOT NULL,                   -- when the last answer came, ns since 1970
    bytes    bytea NOT NULL
);
CREATE INDEX tails_by_table ON trunkline.tails (table_id, id);
CREATE TABLE trunkline.chunks (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    table_id bigint NOT NULL REFERENCES trunkline.tables,
    reach    bigint NOT NULL,                   -- begin of the earliest interval that ends in it
    first    bigint NOT NULL,                   -- first and last response
    last     bigint NOT NULL,
    rows     bigint NOT NULL,
    raw      boolean NOT NULL,                  -- whether there is a body
    size     bigint NOT NULL,                   -- octets of summary and body
    summary  bytea NOT NULL
);
CREATE INDEX chunks_by_end ON trunkline.chunks (table_id, last, reach, first, rows, raw);
CREATE INDEX chunks_by_age ON trunkline.chunks (raw, last) INCLUDE (size);
CREATE TABLE trunkline.bodies (
    chunk bigint PRIMARY KEY REFERENCES trunkline.chunks,
    bytes bytea NOT NULL
);
-- They are compressed already, and read in parts.
ALTER TABLE trunkline.tails ALTER bytes SET STORAGE EXTERNAL;
ALTER TABLE trunkline.chunks ALTER summary SET STORAGE EXTERNAL;
ALTER TABLE trunkline.bodies ALTER bytes SET STORAGE EXTERNAL;
CREATE TABLE trunkline.texts (                  -- what devices say of themselves in words, as it is now
    device text COLLATE "C" NOT NULL,
    object text COLLATE "C" NOT NULL,           -- as in names of series; empty: the device itself
    key    text COLLATE "C" NOT NULL,
    text   text COLLATE "C" NOT NULL,
    since  bigint NOT NULL,                     -- when it was first seen to say so, ns since 1970
    PRIMARY KEY (device, object, key)
);
CREATE TABLE trunkline.forwards (               -- how far each table was sent on, and where to
    target   text COLLATE "C" NOT NULL,
    table_id bigint NOT NULL REFERENCES trunkline.tables,
    came     bigint NOT NULL,                   -- the last response that was sent, ns since 1970
    PRIMARY KEY (target, table_id)
);
