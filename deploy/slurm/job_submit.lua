--[[
Every new job arrives held and marked, so that the bridge decides when and where it starts.

Install: as /etc/slurm/job_submit.lua on the host of slurmctld, with JobSubmitPlugins=lua in slurm.conf.
Off:     touch /etc/slurm/cpsched.off -- looked for at every submission; jobs then flow to Slurm's own scheduler.

The proof that this plugin held a job is its admin_comment "bridge:wait". Slurm lets nobody but this plugin and an
administrator write it: neither a user, at submission or later, nor a Slurm operator such as the bridge. For the same
reason the plugin cannot change it on behalf of those. What happens to a job later is therefore noted in its comment, as
words in front of what the user wrote there:
  bridge:user-held    its owner asked for a hold, at submission or later
  bridge:admin-held   an administrator or operator other than the bridge holds it
  bridge:wait         the bridge held it, after the hold of this plugin
  bridge:asked(X)     its owner asked for the node list X (a bridge's change of the list would lose it)
  bridge:pinned(X)    the bridge set the job's node list; X is the one that its owner had asked for, mostly empty
Users can neither write these words into a comment nor lose them by writing another. This holds while the plugin is
loaded, also while it is switched off. Words are separated by single spaces, and count only where they match exactly.

The bridge may start a held job, and the dead-man timer may hand it back to Slurm, only where
  - the admin_comment is bridge:wait, and
  - the comment has neither bridge:user-held nor bridge:admin-held, and
  - the comment has bridge:wait, or the job was never requeued and its reason is not JobHeldAdmin, and
  - Slurm does not hold the job itself (reason BadConstraints and the like).
The third rule leaves out holds of which this plugin is not told, those of `scontrol requeuehold`. Of all other jobs only
the bridge's own ledger can say that the bridge holds them. The bridge's release of a job that its owner or an
administrator holds is refused here as well. An owner who releases the own hold passes the job on to the bridge; an
owner cannot release what waits for the bridge.

The bridge may pin and release a held job in one change, by the partition bridge:start/NODES, or
bridge:start/NODES/LEAST-MOST with the number of its nodes. One call of slurmctld then does what takes four otherwise.

Left to Slurm, neither held nor marked:
  - het jobs: their components cannot be updated one by one
  - scrontab jobs: they refuse updates
  - --immediate: it would fail at once because of the hold
  - an explicit --priority given by root: an administrator's order
  - jobs of the bridge's own user, jobs outside `partitions` (if set)
  - a node list so long that it cannot be noted in the comment
  - srun and salloc, where exempt_interactive is set
Arrays are held like everything else, and so are srun and salloc otherwise.

Settings: a file /etc/slurm/cpsched.lua may return a table that replaces any of these. It is read when slurmctld loads
this script: at its start, and when this script's modification time changes.
--]]

local settings = {
   off_file = "/etc/slurm/cpsched.off",
   -- uid of the Unix user that the bridge runs as.
   bridge_uid = nil,
   -- Names of the partitions to manage; nil: all. A job that names none is in the default partition.
   partitions = nil,
   -- A file that is written anew with every submission and change that this plugin sees: a bridge with this file among
   -- its cycle.trigger_files looks at once. Its folder must be writable by SlurmUser.
   wake_file = nil,
   -- Leave jobs without a script, those of srun and salloc, to Slurm: they start as they would without a bridge.
   exempt_interactive = false,
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

-- Wake a bridge. That nobody can write the file must stop no submission.
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

-- Is one of the job's partitions (it may name several, with commas) among the managed ones?
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

-- Does the text contain the word?
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

-- Slurm refuses a comment that is longer than this, and with it the whole change: the hold, the release, the node list.
local LONGEST_COMMENT = 1024
-- A node list of this length, with all words, still leaves room in a comment.
local LONGEST_LIST = 384

-- What every word of ours contains, in small letters.
local NAMES = { "bridge:wait", "bridge:user-held", "bridge:admin-held", "bridge:asked(", "bridge:pinned(" }

-- Is it one of our words, exactly?
local function is_marker(word)
   return word == WAIT or word == USER_HELD or word == ADMIN_HELD or string.find(word, "^bridge:%a+%([^()]*%)$") ~= nil
end

-- Could somebody take the user's word for ours? Readers differ in what they take for a blank (a no-break space, a file
-- separator), and in whether case counts: so it is enough that one of our words is somewhere within.
local function resembles_marker(word)
   local small = string.lower(word)
   for _, name in ipairs(NAMES) do
      if string.find(small, name, 1, true) then
         return true
      end
   end
   return false
end

-- The words of the comment, in order, for which keep(word) is true.
local function words(comment, keep)
   local kept = {}
   for word in string.gmatch(comment or "", "%S+") do
      if keep(word) then
         kept[#kept + 1] = word
      end
   end
   return kept
end

-- Our words first, then the user's: whoever reads only the beginning of a comment reads ours. If the comment would be
-- too long, the end of the user's text is lost, never one of our words. An empty text would not be set at all, and the
-- old words would stay: hence the single space.
local function comment_of(markers, user_words)
   local text = table.concat(markers, " ")
   if #user_words > 0 then
      text = text .. (#markers > 0 and " " or "") .. table.concat(user_words, " ")
   end
   if #text > LONGEST_COMMENT then
      -- No half of a UTF-8 character at the end.
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

-- The comment with the marker added, or without all words for which drop(word) is true.
local function with(comment, marker)
   local markers = markers_of(comment)
   if not has(comment, marker) then
      markers[#markers + 1] = marker
   end
   return comment_of(markers, user_words_of(comment))
end

local function filtered(comment, drop)
   local markers = words(comment, function(word) return is_marker(word) and not drop(word) end)
   return comment_of(markers, user_words_of(comment))
end

local function without(comment, marker)
   return has(comment, marker) and filtered(comment, function(word) return word == marker end) or comment
end

-- What a user wrote, behind the words of ours that the old comment has. Control characters become blanks.
local function rewritten(old, new)
   return comment_of(markers_of(old), user_words_of((string.gsub(new, "%c", " "))))
end

-- Words with an argument: bridge:asked(n[1-2]), bridge:pinned().
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

-- Can the node list be noted in the comment? One with other characters is no node list: Slurm will refuse it.
local function can_be_noted(list)
   return #list <= LONGEST_LIST and string.find(list, "^[%w%-_.,%[%]]*$") ~= nil
end

-- The owner (or an administrator) asks for a node list.
local function with_asked(comment, wanted)
   return with_argument(comment, "asked", wanted ~= "" and wanted or nil)
end

-- The bridge sets a node list, or puts back what the owner had asked for.
local function with_pin(comment, wanted)
   local asked = argument(comment, "asked") or ""
   return with_argument(comment, "pinned", wanted ~= asked and wanted ~= "" and asked or nil)
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
   if job_desc.priority == 0 then
      job_desc.comment = with(job_desc.comment, USER_HELD)
   end
   job_desc.priority = 0
   job_desc.admin_comment = WAIT
   return slurm.SUCCESS
end

-- A priority of INFINITE releases a held job.
local INFINITE = 4294967295

-- What the partition of a start asks for: the nodes, and the least and most number of them where it says so.
local function start_in(partition)
   local nodes, least, most = string.match(partition, "^bridge:start/([%w%-_.,]+)/(%d+)%-(%d+)$")
   return nodes or string.match(partition, "^bridge:start/([%w%-_.,]+)$"), tonumber(least), tonumber(most)
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

   -- A start in one change. An empty partition is none: the job stays where it is.
   if by_bridge and job_desc.partition ~= nil then
      local nodes, least, most = start_in(job_desc.partition)
      if nodes then
         if job_rec.priority ~= 0 then
            return refuse("is not held")
         end
         job_desc.partition, job_desc.req_nodes, job_desc.priority = "", nodes, INFINITE
         if least then
            job_desc.min_nodes, job_desc.max_nodes = least, most
         end
      end
   end

   -- What the change does to the comment: the user's text, and the notes on the node list.
   if job_desc.comment ~= nil then
      comment = (modify_uid == 0 or by_bridge) and job_desc.comment or rewritten(comment, job_desc.comment)
   end
   if job_desc.req_nodes ~= nil then
      if by_bridge then
         comment = with_pin(comment, job_desc.req_nodes)
      elseif can_be_noted(job_desc.req_nodes) then
         comment = with_asked(comment, job_desc.req_nodes)
      elseif managed then
         return refuse("this node list cannot be noted for the cluster's scheduler: too long")
      end
   end

   -- What a hold or a release does to it, and whether the release is allowed.
   if not is_set(job_desc.priority) then -- neither
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
            return refuse("held by its owner or an administrator: not the bridge's to release")
         end
         comment = without(comment, WAIT)
      elseif by_owner and managed and not switched_off() then
         if has(comment, ADMIN_HELD) then
            return refuse("an administrator holds this job")
         end
         -- A requeued job without the bridge's hold may be held by `scontrol requeuehold`, of which we are not told, by
         -- whomever: Slurm itself knows, and lets the owner release only the own hold.
         if job_rec.restart_cnt == 0 or has(comment, WAIT) then
            if not has(comment, USER_HELD) then
               return refuse("this job waits for the cluster's scheduler, which starts it when its turn comes")
            end
            job_desc.priority = 0 -- no longer the owner's hold: now it waits for the bridge
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
