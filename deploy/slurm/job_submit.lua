--[[
Every new job arrives held and marked, so that the bridge decides when and where it starts.

Install: as /etc/slurm/job_submit.lua on the host of slurmctld, with JobSubmitPlugins=lua in slurm.conf.
Off:     touch /etc/slurm/cpsched.off -- looked for at every submission; jobs then flow to Slurm's own scheduler.

The mark of a managed job is admin_comment "bridge:wait": only an administrator or this plugin can set it. Who else holds
it stands in its comment, as a word beside whatever the user wrote there (admin_comment cannot be changed on behalf of
an ordinary user, nor of a Slurm operator such as the bridge):
  bridge:user-held    its owner asked for the hold, at submission or later
  bridge:admin-held   an administrator or operator other than the bridge holds it
  bridge:wait         the bridge holds it, and it was submitted while the plugin was off (so it has no admin_comment)

  bridge:asked(X)     its owner asked for the node list X (a bridge's change of the list would lose it)
  bridge:pinned(X)    the bridge set the job's node list; X is the one that its owner had asked for, mostly empty
Users cannot write these words into a comment, nor lose them by writing another.

So the bridge may start, and the dead-man timer may give back to Slurm, exactly the held jobs that bear bridge:wait and
neither bridge:user-held nor bridge:admin-held. The bridge's release of any other held job is refused here as well. An
owner who releases the own hold passes the job on to the bridge; an owner cannot release what waits for the bridge.

Left to Slurm, neither held nor marked:
  - het jobs: their components cannot be updated one by one
  - scrontab jobs: they refuse updates
  - --immediate: it would fail at once because of the hold
  - an explicit --priority given by root: an administrator's order
  - jobs of the bridge's own user, jobs outside `partitions` (if set)
Arrays, srun and salloc are held like everything else.

Settings: a file /etc/slurm/cpsched.lua may return a table that replaces any of these. It is read when slurmctld loads
this script: at its start, and when this script's modification time changes.
--]]

local settings = {
   off_file = "/etc/slurm/cpsched.off",
   -- uid of the Unix user that the bridge runs as.
   bridge_uid = nil,
   -- Names of the partitions to manage; nil: all. A job that names none is in the default partition.
   partitions = nil,
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
      or not in_managed_partition(job_desc, part_list)
end

-- The comment with the marker added, or taken out.
local function with(comment, marker)
   if comment == nil or string.find(comment, "^%s*$") then
      return marker
   end
   return has(comment, marker) and comment or (comment .. " " .. marker)
end

-- The comment without the words for which drop(word) is true. An empty text would not be set at all, and the marker
-- would stay: hence the single space.
local function filtered(comment, drop)
   local kept = {}
   for word in string.gmatch(comment or "", "%S+") do
      if not drop(word) then
         kept[#kept + 1] = word
      end
   end
   return #kept > 0 and table.concat(kept, " ") or " "
end

local function without(comment, marker)
   return filtered(comment, function(word) return word == marker end)
end

local function is_marker(word)
   return word == WAIT or word == USER_HELD or word == ADMIN_HELD or string.find(word, "^bridge:%a+%(") ~= nil
end

-- What the user wrote, plus the markers that the old comment had.
local function with_markers_of(old, new)
   local comment = filtered(new, is_marker)
   for word in string.gmatch(old or "", "%S+") do
      if is_marker(word) then
         comment = with(comment, word)
      end
   end
   return comment
end

-- Markers with an argument: bridge:asked(n[1-2]), bridge:pinned().
local function argument(comment, name)
   return string.match(" " .. (comment or "") .. " ", " bridge:" .. name .. "%(([^ )]*)%) ")
end

local function with_argument(comment, name, value)
   local others = filtered(comment, function(word) return string.find(word, "^bridge:" .. name .. "%(") ~= nil end)
   return value and with(others, "bridge:" .. name .. "(" .. value .. ")") or others
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
   if job_desc.comment ~= nil and job_desc.comment ~= "" then
      job_desc.comment = with_markers_of(nil, job_desc.comment)
   end
   if is_set(job_desc.req_nodes) and job_desc.req_nodes ~= "" then
      job_desc.comment = with_asked(job_desc.comment, job_desc.req_nodes)
   end
   if switched_off() or left_to_slurm(job_desc, part_list, submit_uid) then
      return slurm.SUCCESS
   end
   if job_desc.priority == 0 then
      job_desc.comment = with(job_desc.comment, USER_HELD)
   end
   job_desc.priority = 0
   job_desc.admin_comment = WAIT
   return slurm.SUCCESS
end

local function refuse(message)
   slurm.log_user("%s", message)
   return slurm.ERROR
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   local by_bridge = settings.bridge_uid ~= nil and modify_uid == settings.bridge_uid
   local by_owner = modify_uid == job_rec.user_id and not by_bridge
   local managed = job_rec.admin_comment == WAIT
   local comment = job_rec.comment

   local new_comment = comment
   if job_desc.comment ~= nil and modify_uid ~= 0 and not by_bridge then
      new_comment = with_markers_of(comment, job_desc.comment)
   end
   if job_desc.req_nodes ~= nil then
      new_comment = (by_bridge and with_pin or with_asked)(new_comment, job_desc.req_nodes)
   end
   if new_comment ~= comment then
      comment = new_comment
      job_desc.comment = comment
   end
   if not is_set(job_desc.priority) then
      return slurm.SUCCESS
   end

   if job_desc.priority == 0 then -- a hold
      if by_bridge then
         if not managed then
            job_desc.comment = with(comment, WAIT)
         end
      elseif managed or has(comment, WAIT) then
         job_desc.comment = with(comment, by_owner and USER_HELD or ADMIN_HELD)
      end
   elseif job_rec.priority ~= 0 then
      return slurm.SUCCESS
   elseif by_bridge then
      if has(comment, USER_HELD) or has(comment, ADMIN_HELD) then
         return refuse("held by its owner or an administrator: not the bridge's to release")
      end
   elseif by_owner and managed and not switched_off() then
      if has(comment, ADMIN_HELD) then
         return refuse("an administrator holds this job")
      elseif has(comment, USER_HELD) then
         job_desc.comment = without(comment, USER_HELD)
         job_desc.priority = 0 -- no longer the owner's hold: now it waits for the bridge
      else
         return refuse("this job waits for the cluster's scheduler, which starts it when its turn comes")
      end
   elseif has(comment, USER_HELD) or has(comment, ADMIN_HELD) then
      job_desc.comment = without(without(comment, USER_HELD), ADMIN_HELD)
   end
   return slurm.SUCCESS
end

return slurm.SUCCESS
