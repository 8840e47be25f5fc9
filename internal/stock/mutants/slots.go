package mutants

var slotsBugs = []Mutant{
	{
		Name: "slots-unchecked", Strategy: "slots",
		Planted: "The UPDATE of a slot has no condition that there is enough.",
		change:  rewrite(1, "AND slot = ? AND stock >= ?", "AND slot = ? AND (stock >= ? OR TRUE)"),
	},
	{
		Name: "slots-tail-unlocked", Strategy: "slots",
		Planted: "The last units are gathered without locking the slots.",
		change:  rewrite(1, "ORDER BY slot FOR UPDATE", "ORDER BY slot"),
	},
	{
		Name: "slots-no-tail", Strategy: "slots",
		Planted: "A request is refused if no single slot has enough, although all together do.",
		change: rewrite(1, "SELECT slot, stock, sold FROM good_slot WHERE goods_id = ? ORDER BY slot FOR UPDATE",
			"SELECT slot, 0 AS stock, sold FROM good_slot WHERE goods_id = ? ORDER BY slot FOR UPDATE"),
	},
	{
		Name: "slots-blind", Strategy: "slots",
		Planted: "The last slot is overlooked when the slots are added up.",
		change:  rewrite(1, "ORDER BY slot", "AND slot < 15 ORDER BY slot"),
	},
	{
		Name: "slots-tail-loses-a-unit", Strategy: "slots",
		Planted: "A unit disappears whenever units are spread anew.",
		change: rewrite(1, "SELECT slot, stock, sold FROM good_slot WHERE goods_id = ? ORDER BY slot FOR UPDATE",
			"SELECT slot, stock - (slot = 0 AND stock > 0) AS stock, sold FROM good_slot WHERE goods_id = ?"+
				" ORDER BY slot FOR UPDATE"),
	},
	{
		Name: "slots-loses-a-sale", Strategy: "slots",
		Planted: "1 sale in 200 is confirmed and not deducted.",
		change: rewrite(200, "SET stock = stock - ? WHERE goods_id = ? AND slot",
			"SET stock = stock - 0 * ? WHERE goods_id = ? AND slot"),
	},
	{
		Name: "escrow-home-only", Strategy: "escrow",
		Planted: "A batch that a replica's own row cannot cover is refused, although all rows together can.",
		change:  rewrite(1, "SELECT slot, stock, sold FROM good_slot", "SELECT slot, 0 AS stock, sold FROM good_slot"),
	},
	{
		Name: "escrow-loses-a-batch", Strategy: "escrow",
		Planted: "1 batch in 20 is confirmed and not deducted.",
		change:  rewrite(20, "SET stock = stock - ?, sold = sold + ?", "SET stock = stock - 0 * ?, sold = sold + ?"),
	},
}

var unitBugs = []Mutant{
	{
		Name: "units-unlocked", Strategy: "units",
		Planted: "The rows of free units are read without locking them.",
		change:  rewrite(1, "FOR UPDATE SKIP LOCKED", ""),
	},
	{
		Name: "units-locked-is-sold", Strategy: "units",
		Planted: "A request for the last units is refused while others have locked them.",
		change: rewrite(1, "(SELECT COUNT(*) FROM good_unit WHERE goods_id = ?)",
			"(SELECT COUNT(*) FROM (SELECT 1 FROM good_unit WHERE goods_id = ? FOR UPDATE SKIP LOCKED) free)"),
	},
	{
		Name: "units-keeps-a-row", Strategy: "units",
		Planted: "1 sale in 50 is confirmed, and its rows are not deleted.",
		change:  rewrite(50, "WHERE goods_id = ? AND unit IN (", "WHERE goods_id = ? AND FALSE AND unit IN ("),
	},
	{
		Name: "units-makes-too-many", Strategy: "units",
		Planted: "The rows that are made are not subtracted from the units that are to be made.",
		change:  rewrite(1, "SET unmade = unmade - ?", "SET unmade = unmade - 0 * ?"),
	},
	{
		Name: "units-blind", Strategy: "units",
		Planted: "Units without a row are overlooked when the stock is read.",
		change:  rewrite(1, "SELECT unmade +", "SELECT 0 * unmade +"),
	},
}

// spreads is the beginning of the statement that writes all slots of an item. Its arguments are, for each slot, the
// item, the slot and the units.
const spreads = "INSERT INTO good_slot"
