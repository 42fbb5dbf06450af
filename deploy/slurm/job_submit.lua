--[[
Hold and mark every new job, so that the bridge decides when and where it starts.

Install: as /etc/slurm/job_submit.lua on slurmctld's host, with JobSubmitPlugins=lua in slurm.conf. INSTALL.md shows how
to combine it with the site's own script.
Disable: touch /etc/slurm/cpsched.off. The plugin checks for this file at every submission. While it exists, Slurm's own
scheduler starts new jobs.

A job's admin_comment "bridge:wait" proves that this plugin held the job. In Slurm, only this plugin and administrators
can write it. Neither users nor Slurm operators, such as the bridge, can write it, at submission or later. For the same
reason, the plugin cannot change it when users or operators change a job. The plugin therefore records later events in
the job's comment, as words in front of the user's text:
  bridge:user-held    the owner requested a hold, at submission or later
  bridge:admin-held   an administrator or operator other than the bridge holds the job
  bridge:wait         the bridge held the job after this plugin's hold
  bridge:asked(X)     the owner requested the node list X (a change by the bridge would otherwise lose it)
  bridge:pinned(X)    the bridge set the job's node list; X is the list that the owner requested, usually empty
  bridge:begin(T)     the job is delayed instead of held: a later begin time keeps Slurm from starting it. T is the begin
                      time that the owner requested, in Unix seconds, or 0
Users can neither write these words into a comment nor remove them by writing another comment. This holds while the
plugin is loaded, even if it is disabled. Words are separated by single spaces, and only exact matches count.

The bridge may start a held job, and the dead-man timer may release it to Slurm, only if
  - the admin_comment is bridge:wait, and
  - the comment contains neither bridge:user-held nor bridge:admin-held, and
  - the comment contains bridge:wait, or the job was never requeued and its reason is not JobHeldAdmin, and
  - Slurm does not hold the job itself (for example, with reason BadConstraints).
The third rule excludes holds by `scontrol requeuehold`, of which Slurm does not notify this plugin. For all other jobs,
only the bridge's ledger shows whether the bridge holds them. This plugin also rejects the bridge's release of a job
that its owner or an administrator holds. If owners release their own hold, the job then waits for the bridge. Owners
cannot release a job that waits for the bridge.

The bridge can pin and release a held job in a single change, which costs slurmctld one call instead of four. For this,
the bridge sets the job's partition to bridge:start/NODES. bridge:start/NODES/MIN-MAX also sets the number of nodes. For
a job that names several partitions, a final /PARTITION selects the partition in which the job starts; the number of
nodes before it may be empty (bridge:start/NODES//PARTITION).

Of two bridges, one leads. Each takeover increases an epoch, which the bridge adds to its changes: bridge:start:EPOCH,
or bridge:set:EPOCH[/PARTITION] for any other change, or bridge:release:EPOCH. The plugin refuses a change with a smaller
epoch than an earlier one, which comes from a bridge that was suspended and does not lead any more.

The plugin leaves these jobs to Slurm. It neither holds nor marks them:
  - heterogeneous jobs: their components cannot be updated individually
  - scrontab jobs: they cannot be updated
  - jobs with --immediate: the hold would make them fail immediately
  - jobs for which root sets an explicit --priority, because this is an administrator's decision
  - jobs of the bridge's own user, and jobs outside `partitions` (if set)
  - jobs whose node list is too long to be recorded in the comment
  - srun and salloc jobs, if exempt_interactive is set
All other jobs are held, including arrays and, without exempt_interactive, srun and salloc jobs.

Slurm does not test the request of a held job, so it would accept a job that can never run. Unless begin_delay_s is 0,
this plugin therefore does not hold a new job but delays its begin time. Slurm tests the request as usual and rejects it
or not, but does not start the job. The bridge holds the job in its next cycle, and this plugin then restores the begin
time that the owner requested. If no bridge runs, Slurm starts the job after the delay. Jobs submitted with --hold are
held at once, because Slurm does not test them either.

Settings: the file /etc/slurm/cpsched.lua may return a table that overrides any of the settings below. It is read when
slurmctld loads this script, that is, when slurmctld starts and when the modification time of /etc/slurm/job_submit.lua
changes. After a change of the settings, touch /etc/slurm/job_submit.lua.
--]]

local settings = {
   off_file = "/etc/slurm/cpsched.off",
   -- The uid of the Unix user that runs the bridge.
   bridge_uid = nil,
   -- Names of the partitions to manage; nil: all. A job without a partition is in the default partition.
   partitions = nil,
   -- A file that this plugin rewrites at every submission and change. A bridge that lists this file in its
   -- cycle.trigger_files then starts a cycle immediately. SlurmUser must have write permission for its folder.
   -- A folder below /run needs an entry in /etc/tmpfiles.d, such as: d /run/cpsched 0755 slurm slurm
   wake_file = nil,
   -- Leave jobs without a script (srun and salloc) to Slurm, so that they start as they would without a bridge.
   exempt_interactive = false,
   -- Seconds by which a new job's begin time is delayed, until the bridge holds the job. It must be much longer than a
   -- cycle. 0: hold new jobs at submission, so that Slurm does not test their requests. Without bridge_uid, jobs
   -- are held at submission too, because this plugin cannot distinguish the two holds.
   begin_delay_s = 120,
   -- Number of one user's new jobs that are delayed within begin_delay_s. Further ones are held at submission, so that
   -- the bridge can hold all delayed jobs in time, and Slurm starts none of them before jobs that are held.
   max_delayed_jobs = 200,
   -- A file in which this plugin keeps the largest epoch of the bridges across restarts of slurmctld. See wake_file for
   -- its folder. Without the folder, a restart forgets the epoch. If it is larger than any bridge's (a clock was set back,
   -- and lease and state folders were deleted), delete it, and touch /etc/slurm/job_submit.lua.
   epoch_file = "/run/cpsched/epoch",
}

local file = io.open("/etc/slurm/cpsched.lua", "r")
if file then
   file:close()
   for key, value in pairs(dofile("/etc/slurm/cpsched.lua")) do
      settings[key] = value
   end
end

local WAIT, USER_HELD, ADMIN_HELD = "bridge:wait", "bridge:user-held", "bridge:admin-held"

local function switched_off()
   local off = io.open(settings.off_file, "r")
   if off then
      off:close()
      return true
   end
   return false
end

-- Wake the bridge. If the file cannot be written, the submission continues.
local function wake()
   local file = settings.wake_file and io.open(settings.wake_file, "w")
   if file then
      file:write("changed\n")
      file:close()
   end
end

local function default_partition(part_list)
   for name, part in pairs(part_list) do
      if part.flag_default == 1 then
         return name
      end
   end
   return nil
end

-- Return whether one of the job's partitions, which are separated by commas, is managed.
local function in_managed_partition(job_desc, part_list)
   if settings.partitions == nil then
      return true
   end
   local names = job_desc.partition or default_partition(part_list) or ""
   for name in string.gmatch(names, "[^,]+") do
      for _, managed in ipairs(settings.partitions) do
         if name == managed then
            return true
         end
      end
   end
   return false
end

-- Return whether the text contains the word.
local function has(text, marker)
   return text ~= nil and string.find(" " .. text .. " ", " " .. marker .. " ", 1, true) ~= nil
end

local function is_set(value)
   return value ~= nil and value ~= slurm.NO_VAL
end

local function left_to_slurm(job_desc, part_list, submit_uid)
   return is_set(job_desc.het_job_offset)
      or job_desc.cron_job
      or (job_desc.immediate ~= nil and job_desc.immediate ~= 0)
      or (submit_uid == 0 and is_set(job_desc.priority) and job_desc.priority ~= 0)
      or (settings.bridge_uid ~= nil and submit_uid == settings.bridge_uid)
      or (settings.exempt_interactive and (job_desc.script == nil or job_desc.script == ""))
      or not in_managed_partition(job_desc, part_list)
end

-- Slurm rejects a longer comment, and with it the whole change: the hold, the release and the node list.
local LONGEST_COMMENT = 1024
-- A comment has enough space for a node list of this length and all other words.
local LONGEST_LIST = 384

-- The beginnings of the plugin's words, in lower case.
local NAMES = {
   "bridge:wait", "bridge:user-held", "bridge:admin-held", "bridge:asked(", "bridge:pinned(", "bridge:begin(",
}

-- Return whether this is exactly one of the plugin's words.
local function is_marker(word)
   return word == WAIT or word == USER_HELD or word == ADMIN_HELD or string.find(word, "^bridge:%a+%([^()]*%)$") ~= nil
end

-- Return whether a user's word could be mistaken for one of the plugin's words. Programs differ in case sensitivity and
-- in what they treat as a blank (such as a no-break space), so a word that contains one of the plugin's words counts.
local function resembles_marker(word)
   local small = string.lower(word)
   for _, name in ipairs(NAMES) do
      if string.find(small, name, 1, true) then
         return true
      end
   end
   return false
end

-- Return the words in the comment for which keep(word) is true, in order.
local function words(comment, keep)
   local kept = {}
   for word in string.gmatch(comment or "", "%S+") do
      if keep(word) then
         kept[#kept + 1] = word
      end
   end
   return kept
end

-- Return a comment with the plugin's words first, so that programs that read only its beginning find them. If the
-- comment is too long, the end of the user's text is cut off, never one of the plugin's words. Slurm would ignore an
-- empty text and keep the old words, so an empty comment is a single space.
local function comment_of(markers, user_words)
   local text = table.concat(markers, " ")
   if #user_words > 0 then
      text = text .. (#markers > 0 and " " or "") .. table.concat(user_words, " ")
   end
   if #text > LONGEST_COMMENT then
      -- Do not cut a UTF-8 character in half.
      text = string.gsub(string.sub(text, 1, LONGEST_COMMENT - 3), "[\192-\255][\128-\191]*$", "")
   end
   return text ~= "" and text or " "
end

local function markers_of(comment)
   return words(comment, is_marker)
end

local function user_words_of(comment)
   return words(comment, function(word) return not is_marker(word) and not resembles_marker(word) end)
end

-- Return the comment with the marker added.
local function with(comment, marker)
   local markers = markers_of(comment)
   if not has(comment, marker) then
      markers[#markers + 1] = marker
   end
   return comment_of(markers, user_words_of(comment))
end

-- Return the comment without the plugin's words for which drop(word) is true.
local function filtered(comment, drop)
   local markers = words(comment, function(word) return is_marker(word) and not drop(word) end)
   return comment_of(markers, user_words_of(comment))
end

local function without(comment, marker)
   return has(comment, marker) and filtered(comment, function(word) return word == marker end) or comment
end

-- Return the plugin's words of the old comment, followed by the user's new text. Control characters become blanks.
local function rewritten(old, new)
   return comment_of(markers_of(old), user_words_of((string.gsub(new, "%c", " "))))
end

-- Return the argument of a word such as bridge:asked(n[1-2]) or bridge:pinned().
local function argument(comment, name)
   return string.match(" " .. (comment or "") .. " ", " bridge:" .. name .. "%(([^() ]*)%) ")
end

local function with_argument(comment, name, value)
   if value == argument(comment, name) then
      return comment
   end
   local others = filtered(comment, function(word) return string.find(word, "^bridge:" .. name .. "%(") ~= nil end)
   return value and with(others, "bridge:" .. name .. "(" .. value .. ")") or others
end

-- Return whether the comment can record the node list. Slurm itself rejects a list with other characters.
local function can_be_noted(list)
   return #list <= LONGEST_LIST and string.find(list, "^[%w%-_.,%[%]]*$") ~= nil
end

-- Record the node list that the owner (or an administrator) requests.
local function with_asked(comment, wanted)
   return with_argument(comment, "asked", wanted ~= "" and wanted or nil)
end

-- Record that the bridge sets a node list. Remove the record if the bridge restores the list that the owner requested.
local function with_pin(comment, wanted)
   local asked = argument(comment, "asked") or ""
   return with_argument(comment, "pinned", wanted ~= asked and wanted ~= "" and asked or nil)
end

-- Delay a job's begin time, and record the begin time that its owner requests.
local function delay_begin(job_desc, asked)
   job_desc.comment = with_argument(job_desc.comment, "begin", string.format("%.0f", asked))
   job_desc.begin_time = math.max(asked, os.time() + settings.begin_delay_s)
end

-- Delayed jobs by user: the begin of a period of begin_delay_s, and the number of jobs since then.
local delayed = {}

-- Return whether another new job of a user may be delayed, and count it.
local function may_delay(uid)
   local now, period = os.time(), delayed[uid]
   if period == nil or now - period.since >= settings.begin_delay_s then
      period = { since = now, count = 0 }
      delayed[uid] = period
   end
   period.count = period.count + 1
   return period.count <= settings.max_delayed_jobs
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   wake()
   local notable = true
   if job_desc.comment ~= nil and job_desc.comment ~= "" then
      job_desc.comment = rewritten(nil, job_desc.comment)
   end
   if is_set(job_desc.req_nodes) and job_desc.req_nodes ~= "" then
      notable = can_be_noted(job_desc.req_nodes)
      if notable then
         job_desc.comment = with_asked(job_desc.comment, job_desc.req_nodes)
      end
   end
   if switched_off() or not notable or left_to_slurm(job_desc, part_list, submit_uid) then
      return slurm.SUCCESS
   end
   local held = job_desc.priority == 0
   if held then
      job_desc.comment = with(job_desc.comment, USER_HELD)
   end
   if held or settings.begin_delay_s == 0 or settings.bridge_uid == nil or not may_delay(job_desc.user_id) then
      job_desc.priority = 0
   else
      delay_begin(job_desc, job_desc.begin_time or 0)
   end
   job_desc.admin_comment = WAIT
   return slurm.SUCCESS
end

local WAITS = "this job waits for the cluster's scheduler, which will start it"

-- A priority of INFINITE releases a held job.
local INFINITE = 4294967295

-- Parse the rest of a request to start a job. Return the nodes, their minimum and maximum number (nil if not given), and
-- the partition (empty if the job stays in its own). For a malformed request, the nodes are nil.
local function start_in(rest)
   local nodes, count, own = string.match(rest, "^/([%w%-_.,]+)/?([%d%-]*)/?([%w%-_.+@]*)$")
   local least, most = string.match(count or "", "^(%d+)%-(%d+)$")
   return (count == "" or least) and nodes, tonumber(least), tonumber(most), own
end

-- Parse a request that the bridge makes with the partition: the action, the epoch (nil if not given), and the rest. For
-- any other partition, the action is nil.
local function request_in(partition)
   local action, epoch, rest = string.match(partition, "^bridge:(%a+):?(%d*)(.*)$")
   return action, tonumber(epoch), rest
end

local newest_epoch = 0
local epoch_file = io.open(settings.epoch_file, "r")
if epoch_file then
   newest_epoch = tonumber(epoch_file:read("*l")) or 0
   epoch_file:close()
end

-- Return whether a bridge of a later epoch has changed jobs. Record the largest epoch.
local function is_superseded(epoch)
   if epoch > newest_epoch then
      newest_epoch = epoch
      local out = io.open(settings.epoch_file, "w")
      if out then
         out:write(string.format("%.0f\n", epoch))
         out:close()
      end
   end
   return epoch < newest_epoch
end

local function refuse(message)
   slurm.log_user("%s", message)
   return slurm.ERROR
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   local by_bridge = settings.bridge_uid ~= nil and modify_uid == settings.bridge_uid
   if not by_bridge then
      wake()
   end
   local by_owner = modify_uid == job_rec.user_id
   local managed = job_rec.admin_comment == WAIT
   local comment = job_rec.comment

   -- Check the epoch, and translate the bridge's request. A start sets node list, number of nodes, partition and release.
   if by_bridge and job_desc.partition ~= nil then
      local action, epoch, rest = request_in(job_desc.partition)
      if epoch and is_superseded(epoch) then
         return refuse("another bridge has taken over")
      end
      if epoch and (action == "set" or action == "release") then
         job_desc.partition = string.match(rest, "^/?(.*)$")
         if action == "release" then
            job_desc.priority = INFINITE
         end
      elseif action == "start" then
         local nodes, least, most, own = start_in(rest)
         if nodes and job_rec.priority ~= 0 then
            return refuse("is not held")
         elseif nodes then
            job_desc.partition, job_desc.req_nodes, job_desc.priority = own, nodes, INFINITE
            if least then
               job_desc.min_nodes, job_desc.max_nodes = least, most
            end
         end
      end
   end

   -- Update the comment: the user's text and the words about the node list.
   if job_desc.comment ~= nil then
      comment = (modify_uid == 0 or by_bridge) and job_desc.comment or rewritten(comment, job_desc.comment)
   end
   if job_desc.req_nodes ~= nil then
      if by_bridge then
         comment = with_pin(comment, job_desc.req_nodes)
      elseif can_be_noted(job_desc.req_nodes) then
         comment = with_asked(comment, job_desc.req_nodes)
      elseif managed then
         return refuse("this node list is too long to be recorded for the cluster's scheduler; request a shorter list")
      end
   end

   -- End the delay of a new job if it is held or released. Its owner cannot end the delay by a release.
   local begin = argument(comment, "begin")
   local is_release = is_set(job_desc.priority) and job_desc.priority ~= 0
   if begin and is_release and by_owner and not by_bridge and not switched_off() then
      return refuse(WAITS)
   elseif begin and is_set(job_desc.priority) then
      job_desc.begin_time = math.max(tonumber(begin), os.time())
      comment = with_argument(comment, "begin", nil)
   elseif begin and job_desc.begin_time ~= 0 then
      comment = with_argument(comment, "begin", string.format("%.0f", job_desc.begin_time))
      job_desc.begin_time = math.max(job_desc.begin_time, os.time() + settings.begin_delay_s)
   end

   -- Update the comment for a hold or a release, and check whether the release is permitted.
   if not is_set(job_desc.priority) then -- neither a hold nor a release
   elseif job_desc.priority == 0 then -- a hold
      if by_bridge then
         comment = with(comment, WAIT)
      elseif managed or has(comment, WAIT) then
         comment = with(comment, by_owner and USER_HELD or ADMIN_HELD)
      end
   elseif job_rec.priority == 0 then -- a release
      local others_hold = has(comment, USER_HELD) or has(comment, ADMIN_HELD)
      if by_bridge then
         if others_hold then
            return refuse("held by its owner or an administrator; the bridge cannot release it")
         end
         comment = without(comment, WAIT)
      elseif by_owner and managed and not switched_off() then
         if has(comment, ADMIN_HELD) then
            return refuse("an administrator holds this job")
         end
         -- A requeued job without the bridge's hold may be held by `scontrol requeuehold`, of which Slurm does not
         -- notify the plugin. Slurm itself records who holds the job, and lets an owner release only the owner's hold.
         if job_rec.restart_cnt == 0 or has(comment, WAIT) then
            if not has(comment, USER_HELD) then
               return refuse(WAITS)
            end
            job_desc.priority = 0 -- the owner's hold ends, and the job now waits for the bridge
         end
         comment = without(comment, USER_HELD)
      else
         comment = without(without(without(comment, USER_HELD), ADMIN_HELD), WAIT)
      end
   end

   if comment ~= job_rec.comment or job_desc.comment ~= nil then
      job_desc.comment = comment
   end
   return slurm.SUCCESS
end

return slurm.SUCCESS
