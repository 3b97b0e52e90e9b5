-- Bundles of Trunkline's converter for Wireshark 4 and tshark, in both formats; docs/reference/bundle-wire.md describes them.
--
--   tshark -X lua_script:wireshark/trunkline-bundle.lua -r CAPTURE
--
-- or put it into Wireshark's folder of personal Lua plugins. The dissector recognises a bundle of format 2 by its first PDU, on
-- any port, and one of format 1, which has no signature, by the UDP ports of the daemons or those in the preferences.
-- Wireshark's own dissector shows messages that are PDUs of DIS. (Wireshark uses the name "bundle" for delay-tolerant
-- networking, so this protocol is called tlbundle.)

local bundle = Proto("tlbundle", "Trunkline Message Bundle")

local ROLES = { [1] = "host", [2] = "level 1", [3] = "central" }
local HOW = { [0] = "wrapped", [1] = "an unchanged PDU" }
local ACTIONS = { [1] = "join", [2] = "drop", [3] = "level 3", [4] = "level 4", [5] = "level 5", [6] = "level 6" }
local KINDS = {
	[1] = "join", [2] = "drop", [3] = "confirmed", [4] = "assign", [5] = "assigned", [6] = "ack", [7] = "level",
	[8] = "saturation", [9] = "report", [10] = "bye",
}
local HEADER, ENTRY, PDU, LONGEST_PDU, TYPE = 32, 24, 12, 8192, 244
local CONTROL, HOST_CONTROL, EVERY_HOST = 22, 24, 0xffff
local NO_LIMIT, ANY_RATE = 0xffff, "no limit"

local f = {
	format = ProtoField.string("tlbundle.format", "Format"),
	count = ProtoField.uint8("tlbundle.count", "Messages"),
	address = ProtoField.uint32("tlbundle.address", "Address"),
	packet = ProtoField.uint16("tlbundle.packet", "Packet address"),
	length = ProtoField.uint16("tlbundle.length", "Octets of the body"),
	body = ProtoField.bytes("tlbundle.body", "Body"),
	-- Format 1.
	mask = ProtoField.uint16("tlbundle.mask", "Mask", base.HEX),
	sender = ProtoField.string("tlbundle.sender", "Sender"),
	group = ProtoField.uint16("tlbundle.group", "Group", base.HEX),
	stop = ProtoField.uint16("tlbundle.end", "End of a message"),
	action = ProtoField.uint8("tlbundle.action", "Action", base.DEC, ACTIONS),
	-- Format 2.
	index = ProtoField.uint16("tlbundle.index", "Octets of the index"),
	version = ProtoField.uint8("tlbundle.version", "Version", base.DEC, nil, 0xf0),
	role = ProtoField.uint8("tlbundle.role", "Role", base.DEC, ROLES, 0x0f),
	number = ProtoField.uint16("tlbundle.number", "Number"),
	to = ProtoField.uint16("tlbundle.to", "To"),
	life = ProtoField.uint32("tlbundle.life", "Life"),
	session = ProtoField.uint32("tlbundle.session", "Session"),
	before = ProtoField.uint32("tlbundle.before", "Messages before"),
	site = ProtoField.uint16("tlbundle.site", "Source's site"),
	host = ProtoField.uint16("tlbundle.host", "Source's number"),
	source_life = ProtoField.uint32("tlbundle.source_life", "Source's life"),
	sequence = ProtoField.uint32("tlbundle.sequence", "Sequence"),
	within = ProtoField.uint16("tlbundle.within", "Maximum wait (10 us)"),
	how = ProtoField.uint8("tlbundle.how", "Carried", base.DEC, HOW),
	flags = ProtoField.uint8("tlbundle.flags", "Flags", base.HEX),
	priority = ProtoField.bool("tlbundle.priority", "Priority", 8, nil, 1),
	reliable = ProtoField.bool("tlbundle.reliable", "To be acknowledged", 8, nil, 2),
	reliable_number = ProtoField.uint16("tlbundle.reliable_number", "Number to be acknowledged"),
	wrapper = ProtoField.bytes("tlbundle.wrapper", "Wrapper"),
	zeros = ProtoField.bytes("tlbundle.zeros", "Zeros"),
	kind = ProtoField.uint8("tlbundle.kind", "Control", base.DEC, KINDS),
	argument = ProtoField.uint8("tlbundle.argument", "Argument"),
	octets = ProtoField.uint16("tlbundle.octets", "Octets"),
	change = ProtoField.uint32("tlbundle.change", "First change"),
	first = ProtoField.uint32("tlbundle.first", "First address"),
	last = ProtoField.uint32("tlbundle.last", "Last address"),
	confirmed = ProtoField.uint32("tlbundle.confirmed", "Changes confirmed"),
	assignment = ProtoField.uint32("tlbundle.assignment", "Version of the assignment"),
	packets = ProtoField.bytes("tlbundle.packets", "Packet addresses"),
	assigned = ProtoField.uint16("tlbundle.assigned", "Assigned packet addresses"),
	next = ProtoField.uint16("tlbundle.next", "All received before"),
	beyond = ProtoField.uint64("tlbundle.beyond", "Received beyond", base.HEX),
	level = ProtoField.uint8("tlbundle.level", "Congestion level"),
	rate = ProtoField.uint32("tlbundle.rate", "Octets a second"),
	saturation = ProtoField.uint32("tlbundle.saturation", "Messages a second"),
	received = ProtoField.uint32("tlbundle.received", "Received"),
	lost = ProtoField.uint32("tlbundle.lost", "Lost"),
}
bundle.fields = f

local e = {
	malformed = ProtoExpert.new("tlbundle.malformed", "Malformed bundle", expert.group.MALFORMED,
		expert.severity.ERROR),
	control = ProtoExpert.new("tlbundle.bad_control", "Invalid control message", expert.group.PROTOCOL,
		expert.severity.WARN),
	pdu = ProtoExpert.new("tlbundle.bad_pdu", "A PDU that its dissector cannot read", expert.group.PROTOCOL,
		expert.severity.NOTE),
}
bundle.experts = e

bundle.prefs.level1 = Pref.range("From level 1", "3450", "UDP ports on which the central converter receives from level 1", 65535)
bundle.prefs.hosts = Pref.range("From hosts", "3458", "UDP ports on which the central converter receives from hosts", 65535)
bundle.prefs.to_level1 = Pref.range("To level 1", "3457", "UDP ports on which level 1 receives from the central converter", 65535)
bundle.prefs.to_hosts = Pref.range("To hosts", "3459", "UDP ports on which hosts receive from the central converter", 65535)
bundle.prefs.groups = Pref.range("Groups", "3456", "UDP ports of the multicast groups", 65535)

-- Messages.

-- The dissector of DIS is not registered by name; look it up by its ports.
local function of_dis()
	for _, port in ipairs({ 3000, 6993 }) do
		local found = DissectorTable.get("udp.port"):get_dissector(port)
		if found and tostring(found):upper() == "DIS" then return found end
	end
end
local dis

-- Returns whether octets are one whole PDU of DIS, but not one of format 2.
local function is_pdu(range)
	local length = range and range:len() or 0
	return length >= PDU and length <= LONGEST_PDU and range(8, 2):uint() == length and range(2, 1):uint() ~= TYPE
end

-- Adds a body. An error in the DIS dissector does not affect other messages.
local function add_body(range, pinfo, tree)
	if not range then return end
	local read, taken = true, 0
	dis = dis or of_dis()
	if dis and is_pdu(range) then
		read, taken = pcall(function() return dis:call(range:tvb(), pinfo, tree) end)
	end
	if not read then
		tree:add_proto_expert_info(e.pdu)
	elseif taken == 0 then
		tree:add(f.body, range)
	end
end

local function malformed(tree, why)
	tree:add_proto_expert_info(e.malformed, "Malformed bundle: " .. why)
	return "malformed: " .. why
end

local function messages(count) return ("%d message%s"):format(count, count == 1 and "" or "s") end

-- Returns octets of a range, or nil for an empty part.
local function part(range, from, length)
	if length > 0 then return range(from, length) end
end

-- Format 1 (classic).

local TO_CENTRAL, TO_LEVEL1, TO_HOST = 1, 2, 3

local function sender_of(mask)
	if mask == 0 then return nil end
	if bit.band(mask, mask - 1) == 0 then
		local host = 1
		while bit.rshift(mask, host) ~= 0 do host = host + 1 end
		return ("host %d"):format(host)
	end
	local number = bit.band(mask, 0x3fff)
	if mask >= 0xc000 and number > 0 then return ("level 1, number %d"):format(number) end
end

local function hosts_of(group)
	local hosts = {}
	for host = 1, 16 do
		if bit.band(group, bit.lshift(1, host - 1)) ~= 0 then table.insert(hosts, host) end
	end
	return table.concat(hosts, ", ")
end

-- Returns the ends of the messages of a bundle that begin at `first`, or nil and the reason why it is malformed.
local function ends_of(range, first)
	local length = range:len()
	if length < 1 then return nil, "truncated" end
	local count = range(length - 1, 1):uint()
	if count == 0 then return nil, "without messages" end
	local stop, ends, before = length - 1 - 2 * count, {}, first
	if stop < first then return nil, "truncated" end
	for n = 0, count - 1 do
		local at = range(stop + 2 * n, 2):uint()
		if at < before + 2 or at > stop then return nil, "invalid ends of messages" end
		table.insert(ends, at)
		before = at
	end
	if before ~= stop then return nil, "invalid ends of messages" end
	return ends
end

local function classic_control(range, tree, to_host)
	local address, action = range(0, 2):uint(), range(2, 1):uint()
	tree:add(to_host and f.group or f.address, range(0, 2))
	tree:add(f.action, range(2, 1))
	local right = ACTIONS[action] and (not to_host or address == EVERY_HOST and action >= 3)
	if action >= 3 and right then tree:add(f.level, range(2, 1)) end
	if not right then tree:add_proto_expert_info(e.control) end
	local text = action <= 2 and right and ("%s %d"):format(ACTIONS[action], address) or ACTIONS[action] or "invalid control"
	tree:append_text(": " .. text)
	return text
end

local function classic_message(range, pinfo, tree, way)
	local address, length = range(0, 2):uint(), range:len() - 2
	if way == TO_HOST then
		tree:add(f.group, range(0, 2)):append_text((" (hosts %s)"):format(hosts_of(address)))
	else
		tree:add(f.address, range(0, 2))
		tree:add(f.packet, range(0, 2), math.floor(address / 32)):set_generated()
	end
	tree:add(f.length, range, length):set_generated()
	local to = way == TO_HOST and "hosts " .. hosts_of(address) or tostring(address)
	tree:append_text((": to %s, %d octets"):format(to, length))
	add_body(part(range, 2, length), pinfo, tree)
end

local function classic(range, pinfo, tree, way)
	tree:add(f.format, range, "classic"):set_generated()
	local first, from = 0, nil
	if way == TO_CENTRAL then
		if range:len() < 2 then return malformed(tree, "truncated") end
		from = sender_of(range(0, 2):uint())
		tree:add(f.mask, range(0, 2))
		if not from then return malformed(tree, "unknown mask") end
		tree:add(f.sender, range(0, 2), from):set_generated()
		first = 2
	end
	local ends, why = ends_of(range, first)
	if not ends then return malformed(tree, why) end
	local items, data, at = {}, 0, first
	for n, stop in ipairs(ends) do
		local whole = range(at, stop - at)
		local item = tree:add(bundle, whole)
		if whole:len() == (way == TO_HOST and HOST_CONTROL or CONTROL) then
			item:set_text(("Control %d"):format(n))
			table.insert(items, classic_control(whole, item, way == TO_HOST))
		else
			data = data + 1
			item:set_text(("Message %d"):format(n))
			classic_message(whole, pinfo, item, way)
		end
		at = stop
	end
	for n = 0, #ends - 1 do tree:add(f.stop, range(at + 2 * n, 2)) end
	tree:add(f.count, range(range:len() - 1, 1))
	return from or way == TO_HOST and "central to hosts" or "central to level 1", data, items
end

-- Returns a summary: the sender, the number of messages, and control.
local function summary(who, count, items)
	local texts = {}
	if count > 0 then table.insert(texts, messages(count)) end
	for n, one in ipairs(items) do
		if n <= 4 then table.insert(texts, one) end
	end
	if #items > 4 then table.insert(texts, "…") end
	return who .. ", " .. (#texts > 0 and table.concat(texts, ", ") or "hello")
end

-- Dissects a message of the wide area.
local function classic_group(range, pinfo, tree)
	tree:add(f.format, range, "classic"):set_generated()
	if range:len() < 2 then return malformed(tree, "a message without its address") end
	classic_message(range, pinfo, tree)
	return ("message to %d, %d octets"):format(range(0, 2):uint(), range:len() - 2)
end

-- Format 2.

local function is_wide(tvb)
	return tvb:len() >= 14 and tvb(0, 4):uint() == 0x07fff4f4 and tvb(12, 2):uint() == 0x544c
end

local function rate_item(tree, field, range, unit)
	local item = tree:add(field, range)
	if range:uint() == 0xffffffff then
		item:append_text(" (no limit)")
		return ANY_RATE
	end
	return ("%d %s"):format(range:uint(), unit)
end

-- One function per kind of control item: it takes the item and its tree, and returns whether it is valid, and a summary.
local ITEMS = {}

local function changes(range, tree)
	local count, right, ranges = range(1, 1):uint(), true, {}
	if count == 0 or range:len() ~= 8 + 8 * count then return false end
	tree:add(f.change, range(4, 4))
	for n = 1, count do
		local first, last = range(8 * n, 4), range(8 * n + 4, 4)
		tree:add(f.first, first)
		tree:add(f.last, last)
		right = right and first:uint() <= last:uint()
		if n <= 3 then table.insert(ranges, ("%d-%d"):format(first:uint(), last:uint())) end
	end
	return right, table.concat(ranges, ", ") .. (count > 3 and ", …" or "")
end

local function number(field, octets)
	return function(range, tree)
		if range:len() ~= octets or range(1, 1):uint() ~= 0 then return false end
		tree:add(field, range(4, 4))
		return true, tostring(range(4, 4):uint())
	end
end

ITEMS[1], ITEMS[2], ITEMS[3], ITEMS[5] = changes, changes, number(f.confirmed, 8), number(f.assignment, 8)

ITEMS[4] = function(range, tree)
	if range:len() ~= 264 or range(1, 1):uint() ~= 0 then return false end
	tree:add(f.assignment, range(4, 4))
	local count = 0
	for at = 8, 263 do
		local octet = range(at, 1):uint()
		while octet ~= 0 do
			octet = bit.band(octet, octet - 1)
			count = count + 1
		end
	end
	tree:add(f.packets, range(8, 256)):add(f.assigned, range(8, 256), count):set_generated()
	return true, ("%d groups"):format(count)
end

ITEMS[6] = function(range, tree)
	if range:len() ~= 16 or range(1, 1):uint() ~= 0 then return false end
	tree:add(f.next, range(4, 2))
	tree:add(f.beyond, range(8, 8))
	return range(6, 2):uint() == 0, tostring(range(4, 2):uint())
end

ITEMS[7] = function(range, tree)
	local level = range(1, 1):uint()
	if range:len() ~= 8 or level < 3 or level > 6 then return false end
	tree:add(f.level, range(1, 1))
	return true, ("%d, %s"):format(level, rate_item(tree, f.rate, range(4, 4), "octets/s"))
end

ITEMS[8] = function(range, tree)
	if range:len() ~= 8 or range(1, 1):uint() ~= 0 then return false end
	return true, rate_item(tree, f.saturation, range(4, 4), "messages/s")
end

ITEMS[9] = function(range, tree)
	if range:len() ~= 16 or range(1, 1):uint() ~= 0 then return false end
	tree:add(f.received, range(4, 4))
	tree:add(f.lost, range(8, 4))
	return range(12, 4):uint() == 0, ("%d received, %d lost"):format(range(4, 4):uint(), range(8, 4):uint())
end

ITEMS[10] = function(range) return range:len() == 8 and range(1, 1):uint() == 0 and range(4, 4):uint() == 0, "" end

-- Adds the control items; returns their summaries, or nil if one is invalid.
local function control_items(range, tree)
	local items, at = {}, 0
	while range and at < range:len() do
		local left = range:len() - at
		local octets = left >= 8 and range(at + 2, 2):uint() or 0
		if octets < 8 or octets % 8 ~= 0 or octets > left then return nil end
		local whole = range(at, octets)
		local kind = whole(0, 1):uint()
		local item = tree:add(bundle, whole)
		item:set_text("Control: " .. (KINDS[kind] or "unknown"))
		item:add(f.kind, whole(0, 1))
		item:add(f.argument, whole(1, 1))
		item:add(f.octets, whole(2, 2))
		local right, text = false, nil
		if ITEMS[kind] then right, text = ITEMS[kind](whole, item) end
		if not right then return nil end
		if text ~= "" then item:append_text(" " .. text) end
		table.insert(items, KINDS[kind] .. (text ~= "" and " " .. text or ""))
		at = at + octets
	end
	return items
end

-- Returns the octets of an entry from `at` on, their body, and the zeros after it, or nil and the reason.
local function carried(range, at, entry)
	local length, flags, how = entry(16, 2):uint(), entry(21, 1):uint(), entry(20, 1):uint()
	local left = range:len() - at
	local named = flags ~= 3 and entry(22, 2):uint() ~= 0
	if flags ~= 0 and flags ~= 1 and flags ~= 3 or named or how > 1 then return nil, "invalid index" end
	if how == 1 then
		if length > left then return nil, "invalid lengths" end
		local body = part(range, at, length)
		if not is_pdu(body) then return nil, "invalid index" end
		return body, body
	end
	local whole = math.floor((PDU + length + 7) / 8) * 8
	if whole > left then return nil, "invalid lengths" end
	local wrapper, body = range(at, whole), part(range, at + PDU, length)
	local ours = wrapper(0, 8):bytes():tohex() == "07FFF4F400000000" and wrapper(8, 2):uint() == whole
		and wrapper(10, 2):uint() == 0 and length <= LONGEST_PDU - PDU and not is_pdu(body)
	local zeros = part(range, at + PDU + length, whole - PDU - length)
	if not ours or zeros and zeros:bytes():tohex():find("[^0]") then return nil, "invalid index" end
	return wrapper, body, zeros
end

local function wide_message(entry, tree)
	local address, flags = entry(0, 4):uint(), entry(21, 1):uint()
	tree:add(f.address, entry(0, 4))
	tree:add(f.packet, entry(0, 4), math.floor(address % 65536 / 32)):set_generated()
	tree:add(f.site, entry(4, 2))
	tree:add(f.host, entry(6, 2))
	tree:add(f.source_life, entry(8, 4))
	tree:add(f.sequence, entry(12, 4))
	tree:add(f.length, entry(16, 2))
	local within = tree:add(f.within, entry(18, 2))
	if entry(18, 2):uint() == NO_LIMIT then within:append_text(" (as the settings say)") end
	tree:add(f.how, entry(20, 1))
	local set = tree:add(f.flags, entry(21, 1))
	set:add(f.priority, entry(21, 1))
	set:add(f.reliable, entry(21, 1))
	if flags == 3 then tree:add(f.reliable_number, entry(22, 2)) end
	tree:append_text((": to %d from host %d of site %d, %d octets%s"):format(address, entry(6, 2):uint(),
		entry(4, 2):uint(), entry(16, 2):uint(), bit.band(flags, 1) ~= 0 and ", priority" or ""))
end

-- Returns sender and receiver.
local function wide_header(range, tree)
	local role, sender, to = bit.band(range(14, 1):uint(), 15), range(16, 2):uint(), range(18, 2):uint()
	tree:add(f.index, range(8, 2))
	tree:add(f.version, range(14, 1))
	tree:add(f.role, range(14, 1))
	tree:add(f.count, range(15, 1))
	tree:add(f.number, range(16, 2))
	tree:add(f.to, range(18, 2))
	tree:add(f.life, range(20, 4))
	tree:add(f.session, range(24, 4))
	tree:add(f.before, range(28, 4))
	local from = ROLES[role] and (role == 3 and "central" or ("%s %d"):format(ROLES[role], sender)) or "?"
	if role == 3 then return ("central to %s"):format(to == 0 and "all" or tostring(to)) end
	return from
end

local function wide(range, pinfo, tree)
	local length = range:len()
	tree:add(f.format, range, "wide"):set_generated()
	if length < HEADER then return malformed(tree, "invalid lengths") end
	if range(4, 4):uint() ~= 0 or range(10, 2):uint() ~= 0 then return malformed(tree, "another format") end
	local who, octet, index, count = wide_header(range, tree), range(14, 1):uint(), range(8, 2):uint(), range(15, 1):uint()
	local role = bit.band(octet, 15)
	if bit.rshift(octet, 4) ~= 1 then return malformed(tree, "another version") end
	if not ROLES[role] or (role == 3) ~= (range(16, 2):uint() == 0) then
		return malformed(tree, "invalid sender")
	end
	local behind = HEADER + ENTRY * count
	if index % 8 ~= 0 or index > LONGEST_PDU or behind > index or index > length then
		return malformed(tree, "invalid lengths")
	end
	local at = index
	for n = 0, count - 1 do
		local entry = range(HEADER + ENTRY * n, ENTRY)
		local item = tree:add(bundle, entry)
		item:set_text(("Message %d"):format(n + 1))
		wide_message(entry, item)
		local whole, body, zeros = carried(range, at, entry)
		-- `body` is the reason.
		if not whole then return malformed(tree, body) end
		if entry(20, 1):uint() == 0 then item:add(f.wrapper, whole(0, PDU)) end
		add_body(body, pinfo, item)
		if zeros then item:add(f.zeros, zeros) end
		at = at + whole:len()
	end
	if at ~= length then return malformed(tree, "invalid lengths") end
	local items = control_items(part(range, behind, index - behind), tree)
	if not items then return malformed(tree, "invalid control") end
	return who, count, items
end

-- Both formats.

-- Returns whether a preference, such as "3450,7000-7003", includes a port.
local function has(range, port)
	for first, last in range:gmatch("(%d+)%-?(%d*)") do
		if port >= tonumber(first) and port <= tonumber(last ~= "" and last or first) then return true end
	end
	return false
end

-- Returns the direction of a bundle of format 1. Hosts and level 1 send from the port on which they receive.
local function way_of(pinfo)
	local p, from, to = bundle.prefs, pinfo.src_port, pinfo.dst_port
	if has(p.level1, to) or has(p.hosts, to) then return TO_CENTRAL end
	if has(p.to_hosts, to) or has(p.hosts, from) then return TO_HOST end
	if has(p.to_level1, to) or has(p.level1, from) then return TO_LEVEL1 end
end

function bundle.dissector(tvb, pinfo, tree)
	local length = tvb:captured_len()
	if length == 0 then return 0 end
	local item, info, count, items = tree:add(bundle, tvb()), nil, nil, nil
	-- Do not dissect packets that a short snapshot length truncated.
	if length < tvb:reported_len() then
		info = "truncated by the capture"
	elseif is_wide(tvb) then
		info, count, items = wide(tvb(), pinfo, item)
	elseif has(bundle.prefs.groups, pinfo.dst_port) then
		info = classic_group(tvb(), pinfo, item)
	else
		info, count, items = classic(tvb(), pinfo, item, way_of(pinfo) or TO_HOST)
	end
	if items then info = summary(info, count, items) end
	item:append_text(": " .. info)
	-- Set the columns after the dissector of DIS, which also sets them.
	pinfo.cols.protocol = "TLBUNDLE"
	pinfo.cols.info = info
	return length
end

local function heuristic(tvb, pinfo, tree)
	if not is_wide(tvb) then return false end
	bundle.dissector(tvb, pinfo, tree)
	return true
end

bundle:register_heuristic("udp", heuristic)

local udp, ports = DissectorTable.get("udp.port"), {}
udp:add_for_decode_as(bundle)

local function add_ports()
	for _, one in ipairs(ports) do udp:remove(one, bundle) end
	ports = {}
	for _, one in ipairs({ "level1", "hosts", "to_level1", "to_hosts", "groups" }) do
		local range = bundle.prefs[one]
		if range ~= "" then
			udp:add(range, bundle)
			table.insert(ports, range)
		end
	end
end
bundle.prefs_changed = add_ports
add_ports()
