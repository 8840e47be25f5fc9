-- Sends one deduction, whose JSON is the script's argument, again and again. Prints what wrk counted as a line of JSON.

wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"

function init(args)
	wrk.body = args[1]
end

function done(summary)
	local e = summary.errors
	io.write(string.format('{"requests":%d,"microseconds":%d,"refused":%d,"broken":%d}\n',
		summary.requests, summary.duration, e.status, e.connect + e.read + e.write + e.timeout))
end
