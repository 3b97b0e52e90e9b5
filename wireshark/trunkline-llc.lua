-- Logical link control type 3 (IEEE 802.2 AC0 and AC1), Trunkline's LLC over UDP and its token, for Wireshark 4 and
-- tshark; docs/wire.md describes the frames.
--
--   tshark -X lua_script:wireshark/trunkline-llc.lua -r CAPTURE
--
-- or put it into Wireshark's folder of personal Lua plugins. Wireshark's own dissector decodes type 1; over UDP this dissector
-- passes the PDU to it. Wireshark has no type 3 ("Unknown") and no way to replace its decoding of the control octet, so type 3
-- appears as a separate tree after the others. Over UDP a datagram is recognised by its ports and group: station n sends from n
-- ports above the common destination port to a multicast group; otherwise use "Decode As" LLC over UDP.

local udp = Proto("llcudp", "Logical-Link Control over UDP (Trunkline)")
local ac = Proto("llcac", "Acknowledged Connectionless LLC (IEEE 802.2 Type 3)")
local token = Proto("llctoken", "Trunkline Token")

local COMMAND = {
	[0] = "accepted", [1] = "SAP not open", [5] = "user error", [6] = "protocol error", [7] = "permanent error",
	[9] = "resources temporarily unavailable", [15] = "temporary error",
}
local RESPONSE = {
	[0] = "information present", [1] = "SAP not open", [3] = "never submitted", [4] = "not requested",
	[5] = "user error", [7] = "permanent error", [9] = "resources temporarily unavailable", [15] = "temporary error",
}
local KINDS = { [1] = "Token", [2] = "Window", [3] = "Join" }
local CONTROL, POLL, TOKEN_SAP, MEMBERS, LONGEST = 0x80, 0x10, 0x54, 32, 1500

udp.fields.priority = ProtoField.uint8("llcudp.priority", "Priority")
udp.fields.first = ProtoField.uint8("llcudp.first", "Token frame", base.HEX)

local f = {
	dsap = ProtoField.uint8("llcac.dsap", "DSAP", base.HEX),
	ssap = ProtoField.uint8("llcac.ssap", "SSAP", base.HEX),
	response = ProtoField.uint8("llcac.response", "Response", base.DEC, { [0] = "command", [1] = "response" }, 0x01),
	number = ProtoField.uint8("llcac.number", "Number", base.DEC, { [0] = "AC0", [1] = "AC1" }, 0x80),
	poll = ProtoField.uint8("llcac.poll", "P/F", base.DEC, nil, POLL),
	status = ProtoField.uint8("llcac.status", "Status", base.HEX),
	accepted = ProtoField.uint8("llcac.status.command", "Command", base.DEC, COMMAND, 0x0f),
	answer = ProtoField.uint8("llcac.status.response", "Response", base.DEC, RESPONSE, 0xf0),
	information = ProtoField.bytes("llcac.information", "Information"),
	length = ProtoField.uint16("llcac.length", "Octets of information"),
}
ac.fields = f
local bad_status = ProtoExpert.new("llcac.bad_status", "Unknown status", expert.group.PROTOCOL, expert.severity.WARN)
local short = ProtoExpert.new("llcac.no_status", "A response without a status", expert.group.MALFORMED,
	expert.severity.ERROR)
ac.experts = { bad_status, short }

local t = {
	kind = ProtoField.uint8("llctoken.kind", "Kind", base.DEC, KINDS),
	station = ProtoField.uint8("llctoken.station", "Station"),
	generation = ProtoField.uint32("llctoken.generation", "Generation"),
	owner = ProtoField.uint8("llctoken.owner", "Owner"),
	sequence = ProtoField.uint32("llctoken.sequence", "Sequence"),
	members = ProtoField.bytes("llctoken.members", "Members"),
	member = ProtoField.uint8("llctoken.member", "Member"),
	count = ProtoField.uint8("llctoken.stations", "Stations"),
}
token.fields = t

-- Dissects a token frame: the information of a UI PDU to and from TOKEN_SAP. Other content is left to other dissectors.
function token.dissector(tvb, pinfo, tree)
	local length = tvb:captured_len()
	if length < 1 then return 0 end
	local kind = tvb(0, 1):uint()
	-- A join may be padded if its length is unknown.
	local whole = kind == 3 and length >= 1 or (kind == 1 or kind == 2) and length >= 11 + MEMBERS
	if not whole then return 0 end
	pinfo.cols.protocol = "LLC token"
	local info = KINDS[kind]
	if kind == 3 then
		tree:add(token, tvb(0, 1)):add(t.kind, tvb(0, 1))
		pinfo.cols.info = info
		return 1
	end
	local item = tree:add(token, tvb(0, 11 + MEMBERS))
	item:add(t.kind, tvb(0, 1))
	local station = item:add(t.station, tvb(1, 1))
	station:append_text(kind == 1 and " (destination)" or " (first invited station)")
	item:add(t.generation, tvb(2, 4))
	item:add(t.owner, tvb(6, 1))
	item:add(t.sequence, tvb(7, 4))
	local bits, names, members = tvb(11, MEMBERS), {}, nil
	for at = 0, MEMBERS - 1 do
		local octet = bits(at, 1):uint()
		for bit_of = 0, 7 do
			if bit.band(octet, bit.lshift(1, bit_of)) ~= 0 then table.insert(names, at * 8 + bit_of) end
		end
	end
	members = item:add(t.members, bits)
	members:add(t.count, bits, #names):set_generated()
	for _, name in ipairs(names) do members:add(t.member, bits(math.floor(name / 8), 1), name) end
	pinfo.cols.info = ("%s %s %d, %d.%d.%d, %d stations"):format(info, kind == 1 and "for" or "from",
		tvb(1, 1):uint(), tvb(2, 4):uint(), tvb(6, 1):uint(), tvb(7, 4):uint(), #names)
	return 11 + MEMBERS
end

-- Dissects a PDU of type 3; `range` is the whole PDU without padding.
local function dissect_ac(range, pinfo, tree)
	local length, ssap, control = range:len(), range(1, 1):uint(), range(2, 1):uint()
	local response = bit.band(ssap, 1) ~= 0
	local item = tree:add(ac, range)
	item:add(f.dsap, range(0, 1))
	item:add(f.ssap, range(1, 1), bit.band(ssap, 0xfe))
	item:add(f.response, range(1, 1))
	item:add(f.number, range(2, 1))
	item:add(f.poll, range(2, 1))
	local at, result = 3, ""
	if response and length < 4 then
		item:add_proto_expert_info(short)
	elseif response then
		local octet = range(3, 1):uint()
		local command, answer = COMMAND[bit.band(octet, 15)], RESPONSE[bit.rshift(octet, 4)]
		local status = item:add(f.status, range(3, 1))
		status:add(f.accepted, range(3, 1))
		status:add(f.answer, range(3, 1))
		if not command or not answer then status:add_proto_expert_info(bad_status) end
		at, result = 4, ", " .. (command or "?")
	end
	item:add(f.length, range, length - at):set_generated()
	if length > at then item:add(f.information, range(at)) end
	local number = bit.band(control, 0x80) ~= 0 and 1 or 0
	local bits = bit.band(control, POLL) ~= 0 and (response and ", F" or ", P") or ""
	local text = ("AC%d %s%s%s, 0x%02x to 0x%02x, %d octets"):format(number, response and "response" or "command", bits,
		result, bit.band(ssap, 0xfe), range(0, 1):uint(), length - at)
	item:append_text(": " .. text)
	pinfo.cols.protocol = "LLC type 3"
	pinfo.cols.info = text
end

-- Runs on every PDU whose control octet Wireshark does not know.
local found_dsap, found_control = Field.new("llc.dsap"), Field.new("llc.control")
local eth_length, vlan_length = Field.new("eth.len"), Field.new("vlan.len")

function ac.dissector(tvb, pinfo, tree)
	local dsap, control = found_dsap(), found_control()
	if not dsap or not control then return end
	local from = dsap.offset
	if from + 3 > tvb:captured_len() then return end
	local octet = tvb(from + 2, 1):uint()
	if bit.band(octet, 0x6f) ~= 0x67 then return end
	-- On Ethernet the length precedes the PDU, and padding may follow; a datagram has no padding.
	local length = tvb:captured_len() - from
	local declared = vlan_length() or eth_length()
	if declared then length = math.min(length, declared.value) end
	dissect_ac(tvb(from, length), pinfo, tree)
end

register_postdissector(ac, true)
DissectorTable.get("llc.dsap"):add(TOKEN_SAP, token)

local llc = Dissector.get("llc")

function udp.dissector(tvb, pinfo, tree)
	local length = tvb:captured_len()
	if length < 4 then return 0 end
	local first = tvb(0, 1):uint()
	local item = tree:add(udp, tvb(0, 1))
	if first == CONTROL then
		item:add(udp.fields.first, tvb(0, 1))
	else
		item:add(udp.fields.priority, tvb(0, 1))
		item:append_text((": priority %d"):format(first))
	end
	pinfo.cols.protocol = "LLC"
	llc:call(tvb(1):tvb(), pinfo, tree)
	return length
end

local UI, XID, TEST = 0x03, 0xaf, 0xe3

local function heuristic(tvb, pinfo, tree)
	local length, from, to = tvb:captured_len(), pinfo.src_port, pinfo.dst_port
	if length < 4 or length > 1 + LONGEST or from <= to or from - to > 254 then return false end
	-- The destination is a multicast group whose last number is a station, or 255 for all stations.
	local first, last = tostring(pinfo.dst):match("^(%d+)%.%d+%.%d+%.(%d+)$")
	if not first or tonumber(first) < 224 or tonumber(first) > 239 or tonumber(last) == 0 then return false end
	local octet, control = tvb(0, 1):uint(), bit.band(tvb(3, 1):uint(), 0xef)
	if octet == CONTROL then
		if tvb(1, 2):uint() ~= TOKEN_SAP * 0x101 or control ~= UI then return false end
	elseif octet > 7 or control ~= UI and control ~= XID and control ~= TEST and bit.band(control, 0x6f) ~= 0x67 then
		return false
	end
	udp.dissector(tvb, pinfo, tree)
	return true
end

udp:register_heuristic("udp", heuristic)
DissectorTable.get("udp.port"):add_for_decode_as(udp)
