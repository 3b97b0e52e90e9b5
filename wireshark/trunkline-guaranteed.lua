-- Trunkline's guaranteed transport for Wireshark 4 and tshark; docs/wire.md describes the frames.
--
--   tshark -X lua_script:wireshark/trunkline-guaranteed.lua -r CAPTURE
--
-- or put it into Wireshark's folder of personal Lua plugins. The dissector finds a connection by its handshake and verifies
-- its checks. If the handshake was not captured, set the UDP port in the preferences, or use "Decode As". Encrypted frames
-- show their readable fields without verification; several encrypted frames in one datagram appear as one.

local guaranteed = Proto("guaranteed", "Trunkline Guaranteed Transport")

local SPECIAL = {
	[1] = "Open", [2] = "Cookie", [3] = "Opened", [4] = "Refused", [5] = "Unknown",
	[6] = "Reset", [7] = "Probe", [8] = "Probe reply",
}
local KINDS = {
	[0] = "Control", [1] = "Piece", [2] = "Pack", [3] = "Multi", [4] = "Ack", [5] = "Repair", [6] = "Part",
}
local MODES = { [0] = "selective", [1] = "go-back-N", [2] = "stop-and-wait" }
local CHECKS = { [0] = "none", [1] = "CRC-32C", [2] = "CRC-64/NVME", [3] = "folded", [4] = "AEAD" }
local REASONS = { [1] = "no room", [2] = "terms", [3] = "version", [4] = "takes no connections", [5] = "key" }
local CONTROL_MESSAGES = { [1] = "Credit", [2] = "Channel credit", [3] = "Finish" }
local BAD, GOOD, UNVERIFIED = 0, 1, 2
local CONTROL = 65535
local START, END, ACK, ACK_REQUEST, NACK = 1, 2, 4, 8, 16
local DUPLICATE, REBUILT, PACK = 8, 1, 4
local AEAD, COUNT, TAG, PROOF = 4, 3, 16, 32

local f = {
	kind = ProtoField.uint8("guaranteed.kind", "Kind", base.DEC, KINDS, 0xe0),
	flags = ProtoField.uint8("guaranteed.flags", "Flags", base.HEX, nil, 0x1f),
	start = ProtoField.bool("guaranteed.flags.start", "START", 8, nil, START),
	stop = ProtoField.bool("guaranteed.flags.end", "END", 8, nil, END),
	ack = ProtoField.bool("guaranteed.flags.ack", "ACK", 8, nil, ACK),
	ack_request = ProtoField.bool("guaranteed.flags.ack_request", "ACK_REQUEST", 8, nil, ACK_REQUEST),
	nack = ProtoField.bool("guaranteed.flags.nack", "NACK", 8, nil, NACK),
	duplicate = ProtoField.bool("guaranteed.flags.duplicate", "DUPLICATE", 8, nil, DUPLICATE),
	special = ProtoField.uint8("guaranteed.special", "Frame", base.DEC, SPECIAL),
	number = ProtoField.uint24("guaranteed.number", "Number"),
	offset = ProtoField.uint16("guaranteed.offset", "Offset"),
	acknowledged = ProtoField.uint24("guaranteed.acknowledged", "Acknowledged"),
	channel = ProtoField.uint16("guaranteed.channel", "Channel"),
	chunk = ProtoField.uint16("guaranteed.chunk", "Chunk number"),
	form = ProtoField.uint8("guaranteed.form", "Form", base.HEX),
	length = ProtoField.uint16("guaranteed.length", "Length"),
	content = ProtoField.bytes("guaranteed.content", "Content"),
	message_length = ProtoField.uint16("guaranteed.message_length", "Message of"),
	control = ProtoField.uint8("guaranteed.control", "Control message", base.DEC, CONTROL_MESSAGES),
	control_channel = ProtoField.uint16("guaranteed.control_channel", "Of channel"),
	limit = ProtoField.uint64("guaranteed.limit", "Limit"),
	delay = ProtoField.uint16("guaranteed.delay", "Delay (us)"),
	duplicates = ProtoField.uint8("guaranteed.duplicates", "Duplicates"),
	counts = ProtoField.bool("guaranteed.flags.rebuilt", "REBUILT", 8, nil, REBUILT),
	ranges = ProtoField.uint8("guaranteed.ranges", "Ranges"),
	missing = ProtoField.uint16("guaranteed.missing", "Missing"),
	arrived = ProtoField.uint16("guaranteed.arrived", "Arrived"),
	version = ProtoField.uint8("guaranteed.version", "Version"),
	client = ProtoField.uint64("guaranteed.client", "Client", base.HEX),
	server = ProtoField.uint64("guaranteed.server", "Server", base.HEX),
	mode = ProtoField.uint8("guaranteed.mode", "Mode", base.DEC, MODES),
	check_code = ProtoField.uint8("guaranteed.check_code", "Check", base.DEC, CHECKS),
	window = ProtoField.uint16("guaranteed.window", "Window (frames)"),
	longest = ProtoField.uint16("guaranteed.longest", "Longest frame (bytes)"),
	ack_delay = ProtoField.uint32("guaranteed.ack_delay", "Longest delay of an acknowledgement (us)"),
	ack_every = ProtoField.uint16("guaranteed.ack_every", "Acknowledgement every (frames)"),
	credit = ProtoField.uint32("guaranteed.credit", "Credit (bytes)"),
	channel_credit = ProtoField.uint32("guaranteed.channel_credit", "Credit of each channel (bytes)"),
	fec_frames = ProtoField.uint8("guaranteed.fec_frames", "Frames of a block, for repair frames"),
	fec_repairs = ProtoField.uint8("guaranteed.fec_repairs", "Repair frames of a block", base.DEC, nil, 0xfe),
	takes_parts = ProtoField.uint8("guaranteed.takes_parts", "Takes parts", base.DEC, nil, 1),
	rebuilt = ProtoField.uint16("guaranteed.rebuilt", "Rebuilt"),
	block = ProtoField.uint8("guaranteed.block", "Frames of the block"),
	sum = ProtoField.bytes("guaranteed.sum", "Sum"),
	cookie = ProtoField.bytes("guaranteed.cookie", "Cookie"),
	proof = ProtoField.bytes("guaranteed.proof", "Proof of the secret"),
	reason = ProtoField.uint8("guaranteed.reason", "Reason", base.DEC),
	echo = ProtoField.bytes("guaranteed.echo", "Of the frame: its first 12 and last 4 bytes"),
	token = ProtoField.uint32("guaranteed.token", "Token"),
	probe_length = ProtoField.uint16("guaranteed.probe_length", "Length of the probe"),
	filling = ProtoField.bytes("guaranteed.filling", "Filling"),
	sealed = ProtoField.bytes("guaranteed.sealed", "Encrypted"),
	count = ProtoField.uint24("guaranteed.count", "Count"),
	check = ProtoField.bytes("guaranteed.check", "Check"),
	status = ProtoField.uint8("guaranteed.status", "Check status", base.DEC,
		{ [BAD] = "bad", [GOOD] = "good", [UNVERIFIED] = "unverified: encrypted, or the handshake was not captured" }),
}
guaranteed.fields = f

local e = {
	bad = ProtoExpert.new("guaranteed.damaged", "Invalid check", expert.group.CHECKSUM, expert.severity.WARN),
	odd = ProtoExpert.new("guaranteed.odd", "Malformed frame", expert.group.PROTOCOL,
		expert.severity.WARN),
}
guaranteed.experts = e

guaranteed.prefs.ports = Pref.range("UDP ports", "", "Ports of connections without a captured handshake", 65535)
guaranteed.prefs.check = Pref.enum("Check of such connections", 4, "Length of the check, if the handshake was not captured", {
	{ 1, "4 bytes", 4 }, { 2, "8 bytes (CRC-64)", 8 }, { 3, "19 bytes (encrypted)", COUNT + TAG } }, false)

-- Checks and secret words. 64-bit values are UInt64, or two halves of 32 bits where speed matters.

local function reflected_table(low, high)
	local lows, highs = {}, {}
	for byte = 0, 255 do
		local l, h = byte, 0
		for _ = 1, 8 do
			local carry = bit.band(l, 1)
			l = bit.bor(bit.rshift(l, 1), bit.lshift(bit.band(h, 1), 31))
			h = bit.rshift(h, 1)
			if carry == 1 then l, h = bit.bxor(l, low), bit.bxor(h, high) end
		end
		lows[byte], highs[byte] = l, h
	end
	return lows, highs
end

local CRC32C = reflected_table(0x82F63B78, 0)
local CRC64_LOW, CRC64_HIGH = reflected_table(0xAC4BC9B5, 0x9A6C9329)

local function u32(text, at)
	local a, b, c, d = text:byte(at, at + 3)
	return ((a * 256 + b) * 256 + c) * 256 + d
end

local function low32(n) return bit.band(n, 0xFFFFFFFF) end

-- For each check, returns where the first frame within `text` ends: the shortest prefix of at least `least` bytes with a
-- valid check, or nil.
local find_end = {}

find_end[0] = function(text, _, low, least)
	for last = math.max(least, 5), #text do
		if low32(u32(text, last - 3)) == low then return last end
	end
end

find_end[1] = function(text, _, low, least)
	local value = -1
	for at = 1, #text - 4 do
		value = bit.bxor(bit.rshift(value, 8), CRC32C[bit.band(bit.bxor(value, text:byte(at)), 255)])
		if at + 4 >= least and low32(u32(text, at + 1)) == bit.bxor(bit.bnot(value), low) then return at + 4 end
	end
end

find_end[2] = function(text, high, low, least)
	local l, h = -1, -1
	for at = 1, #text - 8 do
		local index = bit.band(bit.bxor(l, text:byte(at)), 255)
		l = bit.bor(bit.rshift(l, 8), bit.lshift(bit.band(h, 255), 24))
		l, h = bit.bxor(l, CRC64_LOW[index]), bit.bxor(bit.rshift(h, 8), CRC64_HIGH[index])
		if at + 8 >= least and low32(u32(text, at + 5)) == bit.bxor(bit.bnot(l), low)
			and low32(u32(text, at + 1)) == bit.bxor(bit.bnot(h), high) then
			return at + 8
		end
	end
end

find_end[3] = function(text, _, low, least)
	local high_sum, low_sum = 0, 0
	local words = 0
	for last = 5, #text do
		local length = last - 4
		while (words + 1) * 8 <= length do
			high_sum, low_sum = high_sum + u32(text, words * 8 + 1), low_sum + u32(text, words * 8 + 5)
			words = words + 1
		end
		if last >= least then
			local rest = text:sub(words * 8 + 1, length) .. ("\0"):rep(8)
			local h, l = high_sum + u32(rest, 1), low_sum + u32(rest, 5)
			h = h + math.floor(l / 4294967296)
			local sum = (h % 4294967296 + l % 4294967296) % 4294967296
			if low32(u32(text, last - 3)) == bit.bxor(low32(sum), low) then return last end
		end
	end
end

-- Requires the secret.
find_end[AEAD] = function() return nil end

local function hex(text) return UInt64.fromhex(text) end

local function mix(x)
	x = x + hex("9E3779B97F4A7C15")
	x = x:bxor(x:rshift(30)) * hex("BF58476D1CE4E5B9")
	x = x:bxor(x:rshift(27)) * hex("94D049BB133111EB")
	return x:bxor(x:rshift(31))
end

local function key_of(client, server)
	server = mix(server)
	return mix(client):bxor(server:lshift(32):bor(server:rshift(32)))
end

-- Returns the secret word of a connection as its upper and lower half.
local function secret(connection, out, epoch)
	local name = (out and "out" or "back") .. epoch
	local known = connection.secrets[name]
	if not known then
		local direction = hex(out and "5851F42D4C957F2D" or "14057B7EF767814F")
		local word = mix(connection.key:bxor(direction):bxor(UInt64.new(epoch, 0) * hex("D1342543DE82EF95")))
		known = { low32(word:higher()), low32(word:lower()) }
		connection.secrets[name] = known
	end
	return known[1], known[2]
end

-- Connections, found when Wireshark reads a capture for the first time.

local connections -- by pair of ends, newest first
local frame_cache -- by packet: length and check status of each frame

function guaranteed.init()
	connections, frame_cache = {}, {}
end

local function ends_of(pinfo)
	local from, to = tostring(pinfo.src) .. "|" .. pinfo.src_port, tostring(pinfo.dst) .. "|" .. pinfo.dst_port
	return from, to, from < to and from .. " " .. to or to .. " " .. from
end

local function has_valid_crc32c(text)
	return #text > 4 and find_end[1](text, 0, 0, #text) == #text
end

-- Adds the connection that an Opened frame establishes.
local function add_connection(tvb, pinfo)
	local first = tvb(0, 1):uint()
	local check = first == 3 and tvb:len() >= 44 and tvb(19, 1):uint()
	if check and find_end[check] and tvb:len() == 44 + (check == AEAD and PROOF or 0) then
		local from, to, pair = ends_of(pinfo)
		local client, server = tvb(2, 8):uint64(), tvb(10, 8):uint64()
		local all = connections[pair] or {}
		for _, known in ipairs(all) do
			if known.client == client and known.server == server then return end
		end
		table.insert(all, 1, {
			client = client, server = server, key = key_of(client, server), secrets = {}, check = check,
			opener = to, near = { [from] = 0, [to] = 0 },
		})
		connections[pair] = all
	end
end

local function expand(low, near)
	local ahead = (low - near) % 16777216
	return ahead < 8388608 and near + ahead or near + ahead - 16777216
end

-- Returns the number that determines the secret of a frame, and the end that counts it.
local function number_of(connection, text, from, to)
	local kind = math.floor(text:byte(1) / 32)
	local counter = kind == 4 and to or from
	if kind == 0 or #text < 4 then return 0, counter end
	return math.max(0, expand(u32("\0" .. text:sub(2, 4), 1), connection.near[counter])), counter
end

-- Returns where the first frame of this connection in `text` ends, or nil; it has at least `least` bytes.
local function try(connection, text, from, to, least)
	local number, counter = number_of(connection, text, from, to)
	local high, low = secret(connection, from == connection.opener, math.floor(number / 16777216))
	local last = find_end[connection.check](text, high, low, least)
	if last then connection.near[counter] = math.max(connection.near[counter], number) end
	return last
end

local function check_size(connection)
	return connection.check == AEAD and COUNT + TAG or connection.check == 2 and 8 or 4
end

-- Returns the length of the first frame in `text`, the length of its check, and the check status.
local function first_frame(text, pinfo, segment)
	local first = text:byte(1)
	if first >= 1 and first <= 5 then
		return #text, 4, has_valid_crc32c(text) and GOOD or BAD
	end
	local from, to, pair = ends_of(pinfo)
	local all = connections[pair]
	if not all then return #text, guaranteed.prefs.check, UNVERIFIED end
	if segment then text = text:sub(1, segment) end
	-- Most datagrams are one frame. With segmentation offload a datagram may hold several. The check "none" is valid for
	-- all of them together as well, so the first pass skips it.
	for _, connection in ipairs(all) do
		local last = connection.check ~= 0 and try(connection, text, from, to, #text)
		if last then return last, check_size(connection), GOOD end
	end
	for _, connection in ipairs(all) do
		local last = try(connection, text, from, to, 1)
		if last then return last, check_size(connection), GOOD end
	end
	for _, connection in ipairs(all) do
		if connection.check == AEAD then return #text, check_size(connection), UNVERIFIED end
	end
	return #text, check_size(all[1]), BAD
end

-- Splits a datagram into frames. Caches the result, since it depends on earlier packets.
local function frames_of(tvb, pinfo)
	if pinfo.visited and frame_cache[pinfo.number] then return frame_cache[pinfo.number] end
	local frames, at, segment = {}, 0, nil
	local text = tvb:raw()
	while at < #text do
		local length, check, status = first_frame(text:sub(at + 1), pinfo, segment)
		table.insert(frames, { length = length, check = check, status = status })
		if status == GOOD then add_connection(tvb(at, length):tvb(), pinfo) end
		segment = segment or length
		at = at + length
	end
	frame_cache[pinfo.number] = frames
	return frames
end

-- Fields.

-- Reads fields from the front of a frame and stops at its end.
local Cursor = {}
Cursor.__index = Cursor

function Cursor.new(range, tree) return setmetatable({ range = range, tree = tree, at = 0 }, Cursor) end

function Cursor:left() return self.range:len() - self.at end

function Cursor:take(field, size)
	if self:left() < size then
		self.odd = true
		self.tree:add_proto_expert_info(e.odd)
		return nil
	end
	local range = self.range(self.at, size)
	self.at = self.at + size
	local item = self.tree:add(field, range)
	return range, item
end

function Cursor:number(field, size)
	local range, item = self:take(field, size)
	return range and range:uint() or 0, item
end

local function flag_names(flags, names)
	local set = {}
	for _, name in ipairs(names) do
		if bit.band(flags, name[1]) ~= 0 then table.insert(set, name[2]) end
	end
	return #set > 0 and " [" .. table.concat(set, " ") .. "]" or ""
end

local function terms(cursor)
	local mode = cursor:number(f.mode, 1)
	local check = cursor:number(f.check_code, 1)
	local window = cursor:number(f.window, 2)
	cursor:take(f.longest, 2)
	cursor:take(f.ack_delay, 4)
	cursor:take(f.ack_every, 2)
	cursor:take(f.credit, 4)
	cursor:take(f.channel_credit, 4)
	local frames = cursor:number(f.fec_frames, 1)
	local range = cursor:take(f.fec_repairs, 1)
	local last = range and range:uint() or 0
	if range then cursor.tree:add(f.takes_parts, range) end
	local repairs, parts = math.floor(last / 2), last % 2
	local info = (" %s, %s, window %d"):format(MODES[mode] or "?", CHECKS[check] or "?", window)
	if frames > 0 and repairs > 0 then info = info .. (", fec %d+%d"):format(frames, repairs) end
	return info .. (parts > 0 and ", takes parts" or ""), check
end

local function special(cursor, first)
	local info, summary, check = SPECIAL[first] or ("Control %d"):format(first)
	cursor.tree:add(f.special, cursor.range(0, 1))
	if first >= 1 and first <= 4 then
		cursor:take(f.version, 1)
		cursor:take(f.client, 8)
	end
	if first == 1 then
		summary, check = terms(cursor)
		info = info .. summary
		local cookie = cursor:take(f.cookie, 16)
		if cookie and cookie:bytes():tohex() ~= ("0"):rep(32) then info = info .. ", with cookie" end
	elseif first == 2 then
		cursor:take(f.cookie, 16)
	elseif first == 3 then
		cursor:take(f.server, 8)
		summary, check = terms(cursor)
		info = info .. summary
	elseif first == 4 then
		local reason, item = cursor:number(f.reason, 1)
		if item then item:append_text(" (" .. (REASONS[reason] or "?") .. ")") end
		info = info .. ": " .. (REASONS[reason] or "?")
	elseif first == 5 then
		cursor:take(f.echo, 16)
	elseif first == 6 then
		cursor:take(f.reason, 1)
	elseif first == 7 or first == 8 then
		info = info .. " " .. cursor:number(f.token, 4)
		if first == 8 then
			cursor:take(f.probe_length, 2)
		elseif cursor:left() > 0 then
			cursor:take(f.filling, cursor:left())
		end
	else
		cursor.tree:add_proto_expert_info(e.odd)
	end
	if check == AEAD then cursor:take(f.proof, PROOF) end
	return info
end

local function pack(range, tree)
	local cursor, count = Cursor.new(range, tree), 0
	while cursor:left() > 0 and not cursor.odd do
		local size = range(cursor.at, 1):uint() >= 128 and 2 or 1
		if cursor:left() < size then
			cursor:take(f.message_length, size)
			break
		end
		local length = range(cursor.at, size):uint() % (size == 2 and 32768 or 128)
		tree:add(f.message_length, range(cursor.at, size), length)
		cursor.at = cursor.at + size
		if length > 0 then cursor:take(f.content, length) end
		count = count + 1
	end
	return count
end

local function control(range, tree)
	local cursor = Cursor.new(range, tree)
	local control = cursor:number(f.control, 1)
	local info = CONTROL_MESSAGES[control] or "?"
	if control == 2 then info = info .. " " .. cursor:number(f.control_channel, 2) end
	if control == 1 or control == 2 then
		local limit = cursor:take(f.limit, 8)
		if limit then info = info .. " to " .. tostring(limit:uint64()) end
	end
	if not CONTROL_MESSAGES[control] or cursor:left() > 0 then tree:add_proto_expert_info(e.odd) end
	return info
end

-- Adds the content of a chunk, and returns its summary for the info column.
local function content(cursor, tree, channel, form, size)
	if cursor:left() < size then
		cursor:take(f.content, size)
		return "?"
	end
	if size == 0 then return "empty" end
	local range = cursor.range(cursor.at, size)
	cursor.at = cursor.at + size
	if channel == CONTROL then return control(range, tree) end
	if form == PACK then return ("%d messages"):format(pack(range, tree)) end
	tree:add(f.content, range)
	return ("%d bytes"):format(size)
end

local function chunk(cursor, tree, kind, flags)
	local from = cursor.at
	if cursor:left() == 0 then
		cursor:take(f.channel, 2)
		return "?"
	end
	local item = tree:add(guaranteed, cursor.range(from), "Chunk")
	cursor.tree = item
	local channel = cursor:number(f.channel, 2)
	local number = cursor:number(f.chunk, 2)
	local form, size = kind == 2 and PACK or bit.band(flags, START + END), cursor:left()
	if kind == 3 then
		form = cursor:number(f.form, 1)
		size = cursor:number(f.length, 2)
	end
	if cursor.odd then return "?" end
	local summary = content(cursor, item, channel, form, size)
	item:set_len(cursor.at - from)
	local name = channel == CONTROL and summary or ("ch %d/%d %s%s"):format(channel, number, summary,
		kind == 3 and flag_names(form, { { START, "START" }, { END, "END" }, { PACK, "PACK" } }) or "")
	item:set_text("Chunk: " .. name)
	return name
end

local DATA_FLAGS = { { START, "START" }, { END, "END" }, { ACK, "ACK" }, { ACK_REQUEST, "ACK_REQUEST" }, { NACK, "NACK" } }
local ACK_FLAGS = { { NACK, "NACK" }, { DUPLICATE, "DUPLICATE" }, { REBUILT, "REBUILT" } }

local function data(cursor, kind, flags, sealed)
	local tree, range = cursor.tree, cursor.range(0, 1)
	for _, field in ipairs({ f.start, f.stop, f.ack, f.ack_request, f.nack }) do tree:add(field, range) end
	local info = ("%s %d"):format(KINDS[kind], (cursor:number(f.number, 3)))
	local acknowledged = bit.band(flags, ACK) ~= 0 and cursor:number(f.acknowledged, 3)
	local chunks = {}
	if sealed then
		table.insert(chunks, ("%d bytes encrypted"):format(cursor:left()))
		if cursor:left() > 0 then cursor:take(f.sealed, cursor:left()) end
	else
		repeat table.insert(chunks, chunk(cursor, tree, kind, flags)) until cursor.odd or cursor:left() == 0
	end
	info = info .. flag_names(flags, DATA_FLAGS) .. " " .. table.concat(chunks, ", ")
	return acknowledged and info .. (", acknowledges %d"):format(acknowledged) or info
end

local function ack(cursor, flags)
	local tree, range = cursor.tree, cursor.range(0, 1)
	for _, field in ipairs({ f.nack, f.duplicate, f.counts }) do tree:add(field, range) end
	local info = ("Ack %d"):format((cursor:number(f.acknowledged, 3))) .. flag_names(flags, ACK_FLAGS)
	cursor:take(f.delay, 2)
	cursor:take(f.duplicates, 1)
	local ranges, count = {}, (cursor:number(f.ranges, 1))
	if bit.band(flags, REBUILT) ~= 0 then cursor:take(f.rebuilt, 2) end
	for _ = 1, count do
		if cursor.odd then break end
		local missing, arrived = cursor:number(f.missing, 2), cursor:number(f.arrived, 2)
		table.insert(ranges, ("-%d +%d"):format(missing, arrived))
	end
	return #ranges > 0 and info .. " (" .. table.concat(ranges, ", ") .. ")" or info
end

-- Reads the rest of a frame, which may be encrypted.
local function rest(cursor, field, sealed)
	cursor:take(sealed and f.sealed or field, math.max(1, cursor:left()))
end

local function repair(cursor, row, sealed)
	local first, frames = cursor:number(f.number, 3), cursor:number(f.block, 1)
	rest(cursor, f.sum, sealed)
	return ("Repair %d of %d to %d"):format(row, first, first + frames - 1)
end

local function part(cursor, flags, sealed)
	cursor.tree:add(f.stop, cursor.range(0, 1))
	local number, offset = cursor:number(f.number, 3), cursor:number(f.offset, 2)
	local size = cursor:left()
	rest(cursor, f.content, sealed)
	return ("Part %d from %d, %d bytes"):format(number, offset, size) .. flag_names(flags, { { END, "END" } })
end

local function dissect_frame(range, tree, frame)
	local check = math.min(frame.check, range:len() - 1)
	local sealed = check == COUNT + TAG
	local cursor = Cursor.new(range(0, range:len() - check), tree)
	local first = range(0, 1):uint()
	local kind, flags = math.floor(first / 32), first % 32
	tree:add(f.kind, range(0, 1))
	cursor.at = 1
	local info
	if frame.status == BAD then
		info = ("%s, damaged"):format(kind == 0 and SPECIAL[first] or KINDS[kind] or "?")
		tree:add_proto_expert_info(e.bad)
	else
		tree:add(f.flags, range(0, 1))
		if kind == 0 then
			info = special(cursor, first)
		elseif kind <= 3 then
			info = data(cursor, kind, flags, sealed)
		elseif kind == 4 then
			info = ack(cursor, flags)
		elseif kind == 5 then
			info = repair(cursor, flags, sealed)
		elseif kind == 6 then
			info = part(cursor, flags, sealed)
		else
			info = ("kind %d"):format(kind)
			tree:add_proto_expert_info(e.odd)
		end
		if frame.status == GOOD and kind <= 6 and cursor:left() > 0 then tree:add_proto_expert_info(e.odd) end
	end
	if sealed then
		tree:add(f.count, range(range:len() - check, COUNT))
		check = TAG
	end
	if check > 0 then tree:add(f.check, range(range:len() - check, check)) end
	tree:add(f.status, range, frame.status):set_generated()
	return info
end

function guaranteed.dissector(tvb, pinfo, tree)
	if tvb:len() == 0 then return 0 end
	pinfo.cols.protocol = "GUARANTEED"
	-- Do not dissect packets that a short snapshot length truncated.
	if tvb:captured_len() < tvb:reported_len() then
		tree:add(guaranteed, tvb()):append_text(" (truncated by the capture)")
		pinfo.cols.info = "truncated by the capture"
		return tvb:captured_len()
	end
	local infos, at = {}, 0
	for _, frame in ipairs(frames_of(tvb, pinfo)) do
		local range = tvb(at, frame.length)
		local item = tree:add(guaranteed, range)
		local info = dissect_frame(range, item, frame)
		item:append_text(": " .. info)
		table.insert(infos, info)
		at = at + frame.length
	end
	local prefix = #infos > 1 and ("%d frames: "):format(#infos) or ""
	pinfo.cols.info = prefix .. table.concat(infos, "; ", 1, math.min(#infos, 4)) .. (#infos > 4 and "; …" or "")
	return tvb:len()
end

-- Claims the conversation of a complete, valid Open frame.
local function heuristic(tvb, pinfo, tree)
	local length = tvb:captured_len()
	if length ~= tvb:reported_len() or length ~= 52 and length ~= 52 + PROOF then return false end
	if tvb(0, 2):uint() ~= 0x0101 or not has_valid_crc32c(tvb:raw()) then return false end
	pinfo.conversation = guaranteed
	guaranteed.dissector(tvb, pinfo, tree)
	return true
end

guaranteed:register_heuristic("udp", heuristic)
DissectorTable.get("udp.port"):add_for_decode_as(guaranteed)

local ports = ""
function guaranteed.prefs_changed()
	local udp = DissectorTable.get("udp.port")
	if ports ~= "" then udp:remove(ports, guaranteed) end
	ports = guaranteed.prefs.ports
	if ports ~= "" then udp:add(ports, guaranteed) end
end
